"""Futures that compiled code settles, also while other threads begin to wait for them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from queue import Queue
from threading import Barrier
from typing import Any

import pytest

from lakelog import PutResult, PutStatus
from lakelog.log.put_future import PutFuture, settle_appended
from plugins.native.tests.support import both, with_native
from tests.support.waiting import until

PATIENCE_SECONDS = 60.0
ROUNDS = 100
FUTURES = 20


def begun(count: int) -> list[PutFuture]:
    futures = [PutFuture() for _ in range(count)]
    for at, future in enumerate(futures):
        future.appended = PutResult(PutStatus.PUT_OK, "t", 0, at, at, 1, 0, "127.0.0.1:10911")
    return futures


@pytest.mark.parametrize("status", [PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT])
def test_results_and_callbacks_are_those_of_python(status: PutStatus) -> None:
    def settled() -> tuple[list[PutResult], list[tuple[int, bool, bool]]]:
        futures, called = begun(4), list[tuple[int, bool, bool]]()

        def call(number: int, each: Future[PutResult]) -> None:
            called.append((number, each.done(), futures[3].done()))

        for number in (1, 1, 2):
            futures[number].add_done_callback(partial(call, number))
        assert not futures[2].cancelled()  # makes its lock
        settle_appended(futures, status)
        return [each.result(0) for each in futures], called

    ours, theirs = both(settled)
    assert ours == theirs
    assert [result.status for result in ours[0]] == [status] * 4
    assert ours[1] == [(number, True, True) for number in (1, 1, 2)]


def test_a_thread_that_waits_is_woken() -> None:
    def seconds() -> float:
        (future,) = begun(1)
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(_took, lambda: future.result(20))
            until(lambda: future._gate is not None)
            settle_appended([future], PutStatus.PUT_OK)
            return waits.result(PATIENCE_SECONDS)

    assert max(both(seconds)) < 10


def _took(call: Callable[[], Any]) -> float:
    begun_at = time.monotonic()
    call()
    return time.monotonic() - begun_at


def test_a_callback_that_raises_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def failing(_: object) -> None:
        raise ValueError("a fault of the caller")

    def settled() -> list[int]:
        futures, called = begun(2), list[int]()
        for future in futures:
            future.add_done_callback(failing)
            future.add_done_callback(lambda each: called.append(each.result(0).queue_offset))
        settle_appended(futures, PutStatus.PUT_OK)
        return called

    assert both(settled) == ([0, 1], [0, 1])
    assert len(caplog.records) == 4


def test_an_event_loop_is_woken_once_for_all() -> None:
    async def awaited() -> list[int]:
        futures, loop = begun(FUTURES), asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(_result(each)) for each in futures]
        await asyncio.sleep(0)
        woken, wake = list[object](), loop.call_soon_threadsafe

        def count(*call: Any) -> Any:
            woken.append(call)
            return wake(*call)

        loop.call_soon_threadsafe = count  # type: ignore[assignment,method-assign]  # counts
        settle_appended(futures, PutStatus.PUT_OK)
        assert len(woken) == 1
        return [each.queue_offset for each in await asyncio.gather(*tasks)]

    numbers = list(range(FUTURES))
    assert both(lambda: asyncio.run(awaited())) == (numbers, numbers)


async def _result(future: PutFuture) -> PutResult:
    return await future


@pytest.fixture
def _restless() -> Iterator[None]:
    """Let threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _called(futures: list[PutFuture]) -> int:
    called = Queue[Future[Any]]()
    for future in futures:
        future.add_done_callback(called.put)
    found = [called.get(timeout=PATIENCE_SECONDS) for _ in futures]
    assert called.empty()
    return len(set(found))


WAITS: dict[str, Callable[[list[PutFuture]], int]] = {
    "result": lambda futures: len({each.result(PATIENCE_SECONDS).size for each in futures}),
    "as_completed": lambda futures: len(set(as_completed(futures, PATIENCE_SECONDS))),
    "callback": _called,
}


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize("kind", WAITS)
def test_who_begins_to_wait_while_they_are_settled_is_not_missed(kind: str) -> None:
    def rounds() -> set[int]:
        found = set[int]()
        with ThreadPoolExecutor(2) as pool:
            for _ in range(ROUNDS):
                futures, start = begun(FUTURES), Barrier(2)
                waits = pool.submit(_behind, start, partial(WAITS[kind], futures))
                settles = pool.submit(
                    _behind, start, partial(settle_appended, futures, PutStatus.PUT_OK)
                )
                found.add(waits.result(PATIENCE_SECONDS))
                settles.result(PATIENCE_SECONDS)
        return found

    assert with_native(rounds) == {1 if kind == "result" else FUTURES}


def _behind(start: Barrier, call: Callable[[], Any]) -> Any:
    start.wait(PATIENCE_SECONDS)
    return call()
