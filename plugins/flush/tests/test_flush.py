"""Both strategies fulfil the contracts."""

from __future__ import annotations

import pytest

from lakelog.errors import StoreFailed
from lakelog_flush import plugin
from lakelog_flush.groupcommit import GroupCommit
from lakelog_flush.settings import GroupCommitSettings, TimedSettings
from lakelog_flush.timed import Timed
from lakelog_testing import (
    FakeLog,
    FlushStrategyContract,
    GroupFlushStrategyContract,
    PluginContract,
)


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
