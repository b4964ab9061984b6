"""Waiting threads are woken one by one, and none is missed, whatever happens to the others."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Thread, get_ident

import pytest

from lakelog.status import PutStatus
from lakelog_flush.tardy import Tardy
from lakelog_flush.waiter import Rousing, Waiter
from tests.support.waiting import until

OK = PutStatus.PUT_OK
PATIENCE_SECONDS = 10.0


def make() -> Waiter:
    return Waiter(0, time.monotonic() + PATIENCE_SECONDS)


def asleep(pool: ThreadPoolExecutor, waiters: list[Waiter]) -> list[Future[PutStatus]]:
    results = [pool.submit(each.result) for each in waiters]
    until(lambda: all(each._awaited for each in waiters))
    return results


@contextmanager
def ended(rousing: Rousing) -> Iterator[Rousing]:
    """A failing test must not hang: its pool waits for its threads."""
    try:
        yield rousing
    finally:
        rousing.end()


def test_each_wakes_the_next_and_the_end_is_told() -> None:
    ends: list[int] = []
    rousing, waiters = Rousing(lambda: ends.append(get_ident())), [make() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool, ended(rousing):
        results = asleep(pool, waiters)
        rousing.begin(waiters, OK)
        assert [each.result(PATIENCE_SECONDS) for each in results] == [OK] * 8
    assert rousing.is_over()
    assert not rousing
    assert len(ends) == 1
    assert ends[0] != get_ident()  # called by the last but one, not by the starter


def test_answers_are_known_before_all_are_awake() -> None:
    called: list[PutStatus] = []
    sleeper, other, with_call = make(), make(), make()
    with_call.add_done_callback(lambda each: called.append(each.result()))
    with ThreadPoolExecutor(1) as pool, ended(Rousing(int)) as rousing:
        (result,) = asleep(pool, [sleeper])
        rousing.begin([sleeper, other, with_call], OK)
        assert other.done()
        assert other.result(0) is OK
        assert called == [OK]
        assert result.result(PATIENCE_SECONDS) is OK


def test_one_that_gave_up_is_passed_over() -> None:
    impatient, patient = make(), make()
    with pytest.raises(TimeoutError):
        impatient.result(0.001)
    with ThreadPoolExecutor(1) as pool, ended(Rousing(int)) as rousing:
        (result,) = asleep(pool, [patient])
        rousing.begin([impatient, patient], OK)
        assert result.result(PATIENCE_SECONDS) is OK
    assert impatient.result(0) is OK


def test_one_that_is_interrupted_wakes_the_next_all_the_same() -> None:
    interrupted, behind = make(), make()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            interrupted.result()
        except KeyboardInterrupt as error:
            raised.append(error)

    thread = Thread(target=wait)
    thread.start()
    with ThreadPoolExecutor(1) as pool, ended(Rousing(int)) as rousing:
        until(lambda: interrupted._awaited)
        (result,) = asleep(pool, [behind])
        assert thread.ident is not None
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        assert raise_in(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)) == 1
        rousing.begin([interrupted, behind], OK)
        assert result.result(PATIENCE_SECONDS) is OK
    thread.join(PATIENCE_SECONDS)
    assert raised


def test_whoever_likes_goes_on_where_a_thread_is_held_up() -> None:
    held_up, behind = make(), [make(), make()]
    rousing = Rousing(int)
    with ThreadPoolExecutor(2) as pool, ended(rousing):
        results = asleep(pool, behind)
        held_up._awaited = True  # as if a thread slept there that is not scheduled
        rousing.begin([held_up, *behind], OK)
        assert rousing
        rousing.end()
        assert [each.result(PATIENCE_SECONDS) for each in results] == [OK, OK]


# --- late puts ---


def test_one_line_per_second_and_the_rest_at_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("lakelog_flush.tardy.time.monotonic", lambda: clock[0])
    late = Tardy(0.25)
    with caplog.at_level(logging.WARNING, "lakelog"):
        late.add(0)
        late.tell()
        for step in range(30):  # 3 s
            clock[0] = 100 + step / 10
            late.add(2)
        late.add(1)
        late.tell()
        late.tell()
    counts = [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]
    assert counts == [2, 20, 20, 19]
    assert "within 250 ms" in caplog.text
