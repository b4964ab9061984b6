"""The condition variable that futures of puts have in place of Python's."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakelog.log.put_future import PutFuture
from lakelog.runtime.gate import FastCondition
from tests.support.waiting import until

PATIENCE_SECONDS = 20.0


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
