"""Both strategies fulfil the contracts; when ``timed`` flushes."""

from __future__ import annotations

import time

import pytest

from lakelog.errors import StoreFailed
from lakelog_flush import plugin
from lakelog_flush.groupcommit import GroupCommit, GroupCommitSettings
from lakelog_flush.timed import Timed, TimedSettings
from lakelog_testing import (
    FakeLog,
    FlushStrategyContract,
    GroupFlushStrategyContract,
    PluginContract,
)
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways


class TestGroupCommit(GroupFlushStrategyContract):
    def make(self) -> GroupCommit:
        return GroupCommit(GroupCommitSettings())

    def make_hasty(self, timeout_ms: int) -> GroupCommit:
        return GroupCommit(GroupCommitSettings(timeout_ms))

    def test_who_commits_may_wake_one_that_failed(self, log: FakeLog) -> None:
        """The committing thread has not failed, and must not receive the error."""
        flush = self.make()
        flush.start(log)
        log.break_disk()
        with pytest.raises(StoreFailed):
            self.settle(flush.submit(log.append(), wait=True))
        flush.wake()
        with pytest.raises(StoreFailed):
            flush.close()
        flush.wake()


class TestTimed(FlushStrategyContract):
    def make(self) -> Timed:
        return Timed(TimedSettings())


class TestTimedOften(FlushStrategyContract):
    def make(self) -> Timed:
        return Timed(TimedSettings(flush_interval_ms=1, flush_least_pages=0, fixed_rate=False))


class TestPlugin(PluginContract):
    plugin = plugin


# --- the conditions under which 'timed' flushes: RocketMQ's rules ---


PAGE = 4096
PATIENCE_SECONDS = 20.0
SOON_SECONDS = 0.1
"""Wait before a check that something did not happen; a busy machine cannot make it fail."""


def flushed_within(log: FakeLog, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while log.flushed < log.appended and time.monotonic() < deadline:
        time.sleep(0.001)
    return log.flushed == log.appended


def patience(*, expected: bool) -> float:
    return PATIENCE_SECONDS if expected else SOON_SECONDS


@pytest.mark.parametrize(
    ("pages", "bytes_", "flushed"), [(4, 4 * PAGE - 1, False), (4, 4 * PAGE, True), (0, 1, True)]
)
def test_it_needs_enough_dirty_pages(pages: int, bytes_: int, flushed: bool) -> None:
    log = FakeLog()
    log.append(PAGE)
    flush = Timed(TimedSettings(1, pages, 60_000))
    flush.start(log)
    assert flushed_within(log, PATIENCE_SECONDS), "the first round is a thorough one"
    log.append(bytes_)
    assert flushed_within(log, patience(expected=flushed)) is flushed
    flush.close()
    assert log.flushed == log.appended


@pytest.mark.parametrize(("fixed_rate", "flushed"), [(False, True), (True, False)])
def test_appends_wake_it_unless_the_clock_alone_decides(fixed_rate: bool, flushed: bool) -> None:
    log = FakeLog()
    flush = Timed(TimedSettings(60_000, 4, 0, fixed_rate))
    flush.start(log)
    until(lambda: flush._wakeup._asleep)  # an earlier notification wakes nothing
    flush.submit(log.append(4 * PAGE), wait=True)
    assert flushed_within(log, patience(expected=flushed)) is flushed
    flush.close()


def test_a_commit_wakes_it_too() -> None:
    log = FakeLog(staged=True)
    flush = Timed(TimedSettings(60_000, 0, 0, fixed_rate=False))
    flush.start(log)
    until(lambda: flush._wakeup._asleep)  # an earlier notification wakes nothing
    log.append(1)
    flush.wake()
    assert flushed_within(log, PATIENCE_SECONDS)
    flush.close()
