"""Futures of puts, and the condition variable that they have in place of Python's."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import FIRST_COMPLETED, CancelledError, ThreadPoolExecutor, as_completed
from concurrent.futures import wait as wait_for

import pytest

from lakelog.log.put_future import PutFuture
from lakelog.results import PutResult
from lakelog.runtime.gate import FastCondition
from lakelog.status import PutStatus
from tests.support.waiting import until

PATIENCE_SECONDS = 20.0
RESULT = PutResult(PutStatus.PUT_OK, "t", 0, 0, 0, 100, 0, "127.0.0.1:10911")


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


def test_threads_that_wait_for_a_future_get_its_result() -> None:
    future = PutFuture()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(future.result, PATIENCE_SECONDS) for _ in range(3)]
        until(lambda: len(future._condition.sleepers) == 3)  # type: ignore[attr-defined]  # a Gate's
        future.set_result(RESULT)
        assert all(each.result(PATIENCE_SECONDS) is RESULT for each in waiting)


def test_a_future_without_a_result_times_out() -> None:
    with pytest.raises(TimeoutError):
        PutFuture().result(0.01)
    with pytest.raises(TimeoutError):
        PutFuture().exception(0)


def test_a_future_can_be_cancelled_until_it_is_begun() -> None:
    future, begun = PutFuture(), PutFuture()
    assert future.cancel()
    assert not future.set_running_or_notify_cancel()
    with pytest.raises(CancelledError):
        future.result(0)
    assert begun.set_running_or_notify_cancel()
    assert not begun.cancel()


def test_the_functions_of_concurrent_futures_take_it() -> None:
    futures = [PutFuture() for _ in range(3)]
    futures[0].set_result(RESULT)
    assert wait_for(futures, PATIENCE_SECONDS, FIRST_COMPLETED).done == {futures[0]}
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(lambda: list(as_completed(futures, PATIENCE_SECONDS)))
        until(lambda: all(each._waiters for each in futures[1:]))
        futures[2].set_result(RESULT)
        futures[1].set_exception(ValueError("no"))
        assert seen.result(PATIENCE_SECONDS) == [futures[0], futures[2], futures[1]]


def test_it_can_be_awaited() -> None:
    async def run() -> PutResult:
        future = PutFuture()
        asyncio.get_running_loop().run_in_executor(None, future.set_result, RESULT)
        return await asyncio.wait_for(future, PATIENCE_SECONDS)

    assert asyncio.run(run()) is RESULT
