"""A sync waits briefly for puts that return soon, and gives up if they do not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from lakelog.status import PutStatus
from lakelog_flush.gathering import MOST_SECONDS, MOST_SKIPPED, Gathering
from lakelog_flush.groupcommit import GroupCommit
from lakelog_flush.settings import GroupCommitSettings
from lakelog_testing import FakeLog

PATIENCE_SECONDS = 20.0
_TRIES = 5


def test_puts_that_come_back_share_each_sync_instead_of_every_other_one() -> None:
    """On a busy machine some puts return too late to share a sync; another attempt must show it."""
    puts, most = 12, 1.6
    tries: list[int] = []
    while not tries or (tries[-1] >= most * puts and len(tries) < _TRIES):
        tries.append(syncs_for(8, puts))
    assert tries[-1] < most * puts, f"{tries} syncs for {puts} puts of each thread"


def syncs_for(threads: int, puts: int) -> int:
    """On a slow disk."""
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
