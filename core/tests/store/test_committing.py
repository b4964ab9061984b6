"""When the bytes of a staged writer reach the page cache, whatever the flush strategy is."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from core.tests.store.support import open_small
from lakelog import Message
from lakelog.errors import StoreFailed
from lakelog.interfaces import CommitRules, FlushStrategy
from lakelog.log.commit_timer import PAGE_BYTES, Committing, is_due
from lakelog.registry.builtin.flush import InlineFlush, NoFlush
from lakelog_testing import FakeLog
from tests.support.waiting import until


class Heedful(NoFlush):
    """Counts how often it is woken."""

    woken = 0

    def start(self, log: object) -> None: ...

    def wake(self) -> None:
        self.woken += 1


def test_a_commit_is_due_by_pages_and_by_time() -> None:
    for pages, ms, appended, idle_seconds, due in (
        (4, 200, 0, 60, False),
        (4, 200, 1, 0.2, True),
        (4, 1000, 1, 0.2, False),
        (4, 1000, 4 * PAGE_BYTES - 1, 0.2, False),
        (4, 1000, 4 * PAGE_BYTES, 0.2, True),
        (0, 1000, 1, 0.0, True),
        (0, 1000, 0, 0.0, False),
    ):
        assert is_due(CommitRules(200, pages, ms), appended, 0, idle_seconds) is due


def test_commits_come_by_themselves_and_wake_the_strategy() -> None:
    log, inner = FakeLog(staged=True), Heedful()
    flush = Committing(inner, CommitRules(1, 4, 5))
    flush.start(log)
    end = log.append()
    until(lambda: log.committed == end and inner.woken == 1)
    time.sleep(0.05)
    assert inner.woken == 1, "nothing was appended since"
    flush.close()


def test_a_commit_that_fails_ends_the_commits_and_wakes_the_strategy() -> None:
    class Broken(FakeLog):
        commits = 0

        def commit(self) -> int:
            self.commits += 1
            raise StoreFailed("it is broken")

    log, inner = Broken(staged=True), Heedful()
    flush = Committing(inner, CommitRules(1, 0, 0))
    flush.start(log)
    log.append()
    until(lambda: inner.woken == 1)
    time.sleep(0.02)
    assert log.commits == 1
    flush.close()


@pytest.mark.parametrize(
    "flush",
    [NoFlush(), InlineFlush(), Committing(NoFlush(), CommitRules(60_000))],
    ids=["none", "inline", "none beside commits"],
)
def test_what_survives_the_process_is_committed_by_the_put(flush: FlushStrategy) -> None:
    log = FakeLog(staged=True)
    flush.start(log)
    end = log.append()
    flush.submit(end, False)
    assert (log.committed, log.flushed) == (end, 0)
    flush.close()
    assert log.flushed == end


@pytest.mark.both_ways
def test_what_was_appended_during_a_sync_counts_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "s") as store:
        assert store._owned is not None
        log = store._owned.log
        sync, first = log.segments.sync, store.put(Message("t", b""))

        def slow(start: int, end: int) -> None:
            sync(start, end)
            time.sleep(0.002)
            store.put(Message("t", b""))

        monkeypatch.setattr(log.segments, "sync", slow)
        assert log.sync() == first.end_offset
        assert log.positions.flushed_timestamp_ms == first.store_timestamp_ms
        monkeypatch.setattr(log.segments, "sync", sync)
        assert log.sync() == log.appended


def test_the_log_says_that_a_commit_was_slow(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(FakeLog):
        def commit(self) -> int:
            time.sleep(0.51)
            return super().commit()

    log, inner = Slow(staged=True), Heedful()
    flush = Committing(inner, CommitRules(1, 0, 0))
    with caplog.at_level(logging.WARNING, "lakelog"):
        flush.start(log)
        log.append()
        until(lambda: inner.woken == 1)
        flush.close()
    assert "a commit to the page cache took" in caplog.text
