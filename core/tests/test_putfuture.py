"""Puts that are answered later: futures, what they wait with, and the thread that appends them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from concurrent.futures import TimeoutError as TooLate
from queue import Queue
from typing import Any

import pytest

from lakelog import Message, PutResult, PutStatus
from lakelog.log import async_puts as module
from lakelog.log.async_puts import AsyncPutQueue, Burst
from lakelog.log.put_future import PutFuture, begin, settle
from lakelog.runtime.gate import FastCondition
from tests.support.waiting import until

PATIENCE_SECONDS = 10.0


def begun(count: int) -> list[PutFuture]:
    futures = [PutFuture() for _ in range(count)]
    assert all(begin(each) for each in futures)
    return futures


def results(count: int) -> list[PutResult]:
    return [
        PutResult(PutStatus.PUT_OK, "t", 0, at, at * 100, 100, 0, "127.0.0.1:10911")
        for at in range(count)
    ]


def test_what_was_cancelled_does_not_begin() -> None:
    future = PutFuture()
    assert future.cancel()
    assert not begin(future)
    assert begin(running := PutFuture())
    assert not running.cancel()


def test_threads_and_callbacks_get_their_results() -> None:
    futures, given, called = begun(3), results(3), list[int]()
    futures[1].add_done_callback(lambda each: called.append(each.result().queue_offset))
    with ThreadPoolExecutor(4) as pool:
        sleepers = [pool.submit(each.result, PATIENCE_SECONDS) for each in futures]
        completed = pool.submit(lambda: set(as_completed(futures, PATIENCE_SECONDS)))
        with pytest.raises(TooLate):
            completed.result(0.05)
        settle(futures, given)
        assert [each.result(PATIENCE_SECONDS) for each in sleepers] == given
        assert completed.result(PATIENCE_SECONDS) == set(futures)
    assert called == [1]
    assert wait(futures, 0).done == set(futures)


class Counting(asyncio.SelectorEventLoop):
    calls = 0

    def call_soon_threadsafe(  # type: ignore[override]  # it is called with no more than that
        self, callback: Callable[..., object], *args: Any, **more: Any
    ) -> asyncio.Handle:
        self.calls += 1
        return super().call_soon_threadsafe(callback, *args, **more)


async def _awaited(future: PutFuture) -> PutResult:
    return await future


def run(loop: asyncio.AbstractEventLoop, coroutine: Any) -> Any:
    return loop.run_until_complete(asyncio.wait_for(coroutine, PATIENCE_SECONDS))


def test_an_event_loop_is_woken_once_for_all_that_come_together() -> None:
    futures, given, loop = begun(50), results(50), Counting()

    async def run_all() -> list[PutResult]:
        tasks = [asyncio.create_task(_awaited(each)) for each in futures]
        await asyncio.sleep(0)
        before = loop.calls
        settle(futures, given)
        assert loop.calls == before + 1
        return await asyncio.gather(*tasks)

    assert run(loop, run_all()) == given
    assert run(loop, _awaited(futures[0])) == given[0]  # that is known by now
    loop.close()


def test_a_loop_that_is_closed_holds_up_nobody() -> None:
    (future,), loop = begun(1), Counting()
    task = loop.create_task(_awaited(future))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    settle([future], results(1))
    assert future.result(0) == results(1)[0]
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it never ends


def test_errors_and_cancelled_puts_come_through() -> None:
    async def failing() -> None:
        failed, cancelled = begun(1)[0], PutFuture()
        tasks = [asyncio.create_task(_awaited(each)) for each in (failed, cancelled)]
        await asyncio.sleep(0)
        failed.set_exception(OSError("the disk"))
        assert cancelled.cancel()
        with pytest.raises(OSError, match="the disk"):
            await tasks[0]
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]

    asyncio.run(failing())


def test_to_cancel_who_awaits_cancels_a_put_that_has_not_begun() -> None:
    async def cancelling() -> None:
        pending, running = PutFuture(), begun(1)[0]
        tasks = [asyncio.create_task(_awaited(each)) for each in (pending, running)]
        await asyncio.sleep(0)
        for each in tasks:
            each.cancel()
            with pytest.raises(asyncio.CancelledError):
                await each
        assert pending.cancelled()
        assert not running.cancelled()
        settle([running], results(1))
        await asyncio.sleep(0.01)
        assert running.result(0) == results(1)[0]

    asyncio.run(cancelling())


# --- the condition variable that they have in place of Python's ---


def test_a_wait_that_nobody_ends_is_over_in_time_and_leaves_nobody_behind() -> None:
    gate = FastCondition()
    with gate:
        assert not gate.wait(0.01)
        assert not gate.sleepers


def test_whoever_waits_lets_others_in_and_all_are_woken() -> None:
    gate, inside = FastCondition(), list[int]()

    def sleep(number: int) -> bool:
        with gate, gate:  # reentrant: both are left while it sleeps
            inside.append(number)
            return gate.wait(PATIENCE_SECONDS)

    with ThreadPoolExecutor(4) as pool:
        sleeping = [pool.submit(sleep, number) for number in range(4)]
        until(lambda: len(inside) == 4)
        with gate:
            gate.notify_all()
        assert all(each.result(PATIENCE_SECONDS) for each in sleeping)


def test_nobody_returns_from_a_wait_before_the_one_inside_has_left() -> None:
    gate, log = FastCondition(), list[str]()

    def sleep() -> None:
        with gate:
            log.append("sleeps")
            gate.wait(PATIENCE_SECONDS)
            log.append("woke")

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(sleep)
        until(lambda: bool(log))
        with gate:
            gate.notify_all()
            time.sleep(0.02)
            log.append("left")
        done.result(PATIENCE_SECONDS)
    assert log == ["sleeps", "left", "woke"]


def test_a_future_without_a_result_times_out() -> None:
    with pytest.raises(TimeoutError):
        PutFuture().result(0.01)
    with pytest.raises(TimeoutError):
        PutFuture().exception(0)


# --- a coalescer appends in the order of the calls, and lets nobody wait for itself ---


class Log:
    """What came, in its order; each burst waits until it may go on."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.begun = threading.Event()

    def put_burst(self, burst: Burst) -> None:
        self.begun.set()
        assert self.may_go_on.wait(60)
        for message, future in burst:
            self.note(message)
            settle([future], [RESULT])

    def note(self, message: Message) -> None:
        self.came.append(bytes(message.body).decode())


RESULT = PutResult(PutStatus.PUT_OK, "t", 0, 0, 0, 100, 0, "")


def put(coalescer: AsyncPutQueue, *numbers: int) -> list[PutFuture]:
    return [coalescer.put(Message("t", b"%d" % number)) for number in numbers]


def test_who_finds_very_many_before_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    log = Log()
    coalescer = AsyncPutQueue(log.put_burst)
    log.may_go_on.clear()
    put(coalescer, 1)
    assert log.begun.wait(60)
    put(coalescer, 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(put, coalescer, 3, 4)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        log.may_go_on.set()
        waiting.result(60)
    coalescer.close()
    assert log.came == ["1", "2", "3", "4"]


def test_a_callback_waits_for_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the thread that would make room."""
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    log = Log()
    coalescer = AsyncPutQueue(log.put_burst)
    log.may_go_on.clear()
    (first,) = put(coalescer, 1)
    assert log.begun.wait(60)
    again = Queue[PutFuture]()
    first.add_done_callback(lambda _: again.put(put(coalescer, 3)[0]))
    put(coalescer, 2)
    log.may_go_on.set()
    assert again.get(timeout=10).result(10) is RESULT
    coalescer.close()
    assert log.came == ["1", "2", "3"]


class Calling(Log):
    """Whoever hears of the first message puts another one."""

    coalescer: AsyncPutQueue

    def note(self, message: Message) -> None:
        super().note(message)
        if message.body == b"1":
            put(self.coalescer, 2)


def test_a_callback_of_what_is_appended_does_not_wait_for_itself() -> None:
    log = Calling()
    log.coalescer = AsyncPutQueue(log.put_burst)
    log.may_go_on.clear()
    (first,) = put(log.coalescer, 1)
    assert log.begun.wait(60)
    log.may_go_on.set()
    first.result(60)
    log.coalescer.close()
    assert log.came == ["1", "2"]


@pytest.mark.parametrize("direct", [False, True], ids=["by its thread", "by its callers"])
def test_many_threads_keep_each_their_order(direct: bool) -> None:
    log = Log()
    coalescer = AsyncPutQueue(log.put_burst, direct=direct)

    def work(name: int) -> None:
        for number in range(2_000):
            coalescer.put(Message("t", b"%d %d" % (name, number)))

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, name) for name in range(4)]:
            each.result(60)
    coalescer.close()
    for name in range(4):
        numbers = [int(each.split()[1]) for each in log.came if each.split()[0] == str(name)]
        assert numbers == list(range(2_000))
