"""Parts of group commit: threads that wait, late puts, and waits of a sync for more puts."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from threading import Thread

import pytest

from lakelog.log.put_future import PutFuture
from lakelog.results import PutStatus
from lakelog_flush.groupcommit import (
    MOST_SECONDS,
    MOST_SKIPPED,
    Gathering,
    GroupCommit,
    GroupCommitSettings,
    TimeoutLog,
)
from lakelog_flush.waiter import Waiter, WakeChain, Wakeup
from lakelog_testing import FakeLog
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
def ended(chain: WakeChain) -> Iterator[WakeChain]:
    """Wake all threads at the end: the pool waits for them, and a failing test must not hang."""
    try:
        yield chain
    finally:
        chain.end()


def test_one_that_gave_up_is_passed_over() -> None:
    impatient, patient = make(), make()
    with pytest.raises(TimeoutError):
        impatient.result(0.001)
    with ThreadPoolExecutor(1) as pool, ended(WakeChain(int)) as chain:
        (result,) = asleep(pool, [patient])
        chain.begin([impatient, patient], OK)
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
    with ThreadPoolExecutor(1) as pool, ended(WakeChain(int)) as chain:
        until(lambda: interrupted._awaited)
        (result,) = asleep(pool, [behind])
        assert thread.ident is not None
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        assert raise_in(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)) == 1
        chain.begin([interrupted, behind], OK)
        assert result.result(PATIENCE_SECONDS) is OK
    thread.join(PATIENCE_SECONDS)
    assert raised


def test_whoever_likes_goes_on_where_a_thread_is_held_up() -> None:
    held_up, behind = make(), [make(), make()]
    chain = WakeChain(int)
    with ThreadPoolExecutor(2) as pool, ended(chain):
        results = asleep(pool, behind)
        held_up._awaited = True  # as if a thread slept there that is not scheduled
        chain.begin([held_up, *behind], OK)
        assert chain
        chain.end()
        assert [each.result(PATIENCE_SECONDS) for each in results] == [OK, OK]


# --- late puts ---


def test_work_that_comes_before_the_sleep_ends_it() -> None:
    wakeup = Wakeup()

    def has_work() -> bool:
        wakeup.notify()  # by another thread, right behind the look
        return False

    begun = time.monotonic()
    wakeup.sleep(PATIENCE_SECONDS, has_work)
    assert time.monotonic() - begun < PATIENCE_SECONDS / 2


def test_the_next_look_for_late_puts_is_at_the_first_deadline() -> None:
    """Of the puts that are settled later, too."""
    flush, put = GroupCommit(GroupCommitSettings(60_000)), PutFuture()
    put.end_offset = 1
    flush.submit_later(put, lambda *_: None)
    time.sleep(0.01)
    assert flush._seconds_left() <= put.deadline - time.monotonic() + 0.005


def test_one_line_per_second_and_the_rest_at_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("lakelog_flush.groupcommit.time.monotonic", lambda: clock[0])
    late = TimeoutLog(0.25)
    with caplog.at_level(logging.WARNING, "lakelog"):
        late.add(0)
        late.write()
        for step in range(30):  # 3 s
            clock[0] = 100 + step / 10
            late.add(2)
        late.add(1)
        late.write()
        late.write()
    counts = [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]
    assert counts == [2, 20, 20, 19]
    assert "within 250 ms" in caplog.text


# --- a sync waits briefly for puts that return soon, and gives up if they do not ---


def test_puts_that_come_back_share_each_sync_instead_of_every_other_one() -> None:
    """On a busy machine some puts return too late to share a sync; another attempt must show it."""
    puts, most = 12, 1.6
    tries: list[int] = []
    while not tries or (tries[-1] >= most * puts and len(tries) < 5):
        tries.append(syncs_for(8, puts))
    assert tries[-1] < most * puts, f"{tries} syncs for {puts} puts of each thread"


def syncs_for(threads: int, puts: int) -> int:
    """The number of syncs of these puts on a slow disk."""
    log = FakeLog()
    log.sync_seconds = 0.03
    flush = GroupCommit(GroupCommitSettings())
    flush.start(log)

    def produce(_: int) -> bool:
        statuses = []
        for _ in range(puts):
            outcome = flush.submit(log.append(), wait=True)
            assert not isinstance(outcome, PutStatus)
            statuses.append(outcome.result(PATIENCE_SECONDS))
        return statuses == [PutStatus.PUT_OK] * puts

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(produce, range(threads)))
    flush.close()
    return log.syncs


def test_patience_is_a_share_of_a_sync_and_never_long() -> None:
    gathering = Gathering()
    gathering.synced(0.01)
    assert gathering.patience_seconds() == 0, "a disk that is fast, as far as is known"
    for _ in range(100):
        gathering.synced(0.008)
    assert gathering.patience_seconds() == pytest.approx(0.0024, rel=0.01)
    gathering.synced(30)
    assert gathering.patience_seconds() == MOST_SECONDS


def test_what_does_not_pay_is_tried_ever_more_rarely_until_it_does() -> None:
    gathering = Gathering()
    gathering.synced(1)
    tried = []
    for number in range(400):
        if gathering.patience_seconds():
            tried.append(number)
            gathering.ended(in_time=False)
    assert tried[:5] == [0, 2, 5, 10, 19]
    assert max(b - a for a, b in pairwise(tried)) == MOST_SKIPPED + 1
    while not gathering.patience_seconds():
        pass
    gathering.ended(in_time=True)
    assert gathering.patience_seconds() > 0
