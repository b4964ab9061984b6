"""Parts of group commit: wake-ups, late puts, and waits of a sync for more puts."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

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
from lakelog_flush.waiter import Wakeup
from lakelog_testing import FakeLog

PATIENCE_SECONDS = 10.0


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
