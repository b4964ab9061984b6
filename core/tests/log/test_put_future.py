"""Puts that are answered later: futures, what they wait with, and the thread that appends them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from concurrent.futures import TimeoutError as TooLate
from queue import Queue
from typing import Any

import pytest

from lakelog import PutResult, PutStatus
from lakelog.log import appender as module
from lakelog.log.appender import AsyncPutQueue
from lakelog.log.put_future import PutFuture, settle, settle_appended

PATIENCE_SECONDS = 10.0


def begun(count: int) -> list[PutFuture]:
    return [PutFuture() for _ in range(count)]


def results(count: int) -> list[PutResult]:
    return [
        PutResult(PutStatus.PUT_OK, "t", 0, at, at * 100, 100, 0, "127.0.0.1:10911")
        for at in range(count)
    ]


def settle_with(futures: Sequence[PutFuture], given: Sequence[PutResult]) -> None:
    for future, result in zip(futures, given, strict=True):
        future.appended = result
    settle(futures)


def test_threads_and_callbacks_get_their_results() -> None:
    futures, given, called = begun(3), results(3), list[int]()
    futures[1].add_done_callback(lambda each: called.append(each.result().queue_offset))
    with ThreadPoolExecutor(4) as pool:
        sleepers = [pool.submit(each.result, PATIENCE_SECONDS) for each in futures]
        completed = pool.submit(lambda: set(as_completed(futures, PATIENCE_SECONDS)))
        with pytest.raises(TooLate):
            completed.result(0.05)
        settle_with(futures, given)
        assert [each.result(PATIENCE_SECONDS) for each in sleepers] == given
        assert completed.result(PATIENCE_SECONDS) == set(futures)
    assert called == [1]
    assert wait(futures, 0).done == set(futures)


async def _awaited(future: PutFuture) -> PutResult:
    return await future


def test_a_loop_that_is_closed_holds_up_nobody() -> None:
    (future,), loop = begun(1), asyncio.new_event_loop()
    task = loop.create_task(_awaited(future))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    settle_with([future], results(1))
    assert future.result(0) == results(1)[0]
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it never ends


def test_to_cancel_who_awaits_leaves_the_put_alone() -> None:
    async def cancelling() -> None:
        (running,) = begun(1)
        task = asyncio.create_task(_awaited(running))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not running.cancel(), "it is in the log"
        assert not running.cancelled()
        with pytest.raises(TimeoutError):
            running.result(0)
        settle_with([running], results(1))
        await asyncio.sleep(0.01)
        assert running.result(0) == results(1)[0]

    asyncio.run(cancelling())


def test_a_callback_that_is_added_while_the_put_is_settled_is_called() -> None:
    (future,), called = begun(1), list[int]()

    class Late(list[Any]):
        def append(self, callback: Any) -> None:
            settle_with([future], results(1))  # by another thread, behind the look at the state
            super().append(callback)

    future._done_callbacks = Late()
    future.add_done_callback(lambda each: called.append(each.result().queue_offset))
    assert called == [0]


class Waits:
    """The ends that were submitted; each submission blocks until it may go on."""

    def __init__(self) -> None:
        self.submitted: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.begun = threading.Event()
        self.queue = AsyncPutQueue(self.submit)

    def submit(self, burst: Sequence[PutFuture]) -> None:
        self.begun.set()
        assert self.may_go_on.wait(60)
        self.submitted += [each.end_offset for each in burst]
        settle_appended(burst, PutStatus.PUT_OK, self.queue.serve)

    def put(self, *ends: int) -> list[PutFuture]:
        futures = begun(len(ends))
        for future, end in zip(futures, ends, strict=True):
            future.end_offset, future.appended = end, RESULT
            self.queue.put(future)
        return futures


RESULT = PutResult(PutStatus.PUT_OK, "t", 0, 0, 0, 100, 0, "")


@pytest.fixture
def waits() -> Iterator[Waits]:
    """Whose first submission, of the end 1, blocks until `may_go_on` is set."""
    waits = Waits()
    waits.may_go_on.clear()
    yield waits
    waits.may_go_on.set()
    waits.queue.close()


def test_who_finds_very_many_before_waits_for_room(
    waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    waits.put(1)
    assert waits.begun.wait(60)
    waits.put(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waits.put, 3, 4)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        waits.may_go_on.set()
        futures = waiting.result(60)
    assert [each.result(60) for each in futures] == [RESULT] * 2
    assert waits.submitted == [1, 2, 3, 4]


def test_a_callback_waits_for_no_room_and_not_for_itself(
    waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the thread that would make room, and would submit its put."""
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    (first,) = waits.put(1)
    assert waits.begun.wait(60)
    again = Queue[PutResult]()
    first.add_done_callback(lambda _: again.put(waits.put(3)[0].result(10)))
    waits.put(2)
    waits.may_go_on.set()
    assert again.get(timeout=20) is RESULT
    assert waits.submitted == [1, 2, 3]


def test_once_it_is_closed_a_put_waits_itself(waits: Waits) -> None:
    waits.may_go_on.set()
    waits.put(1)
    waits.queue.close()
    (late,) = waits.put(2)
    assert late.done()
    assert waits.submitted == [1, 2]
