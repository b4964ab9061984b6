"""Both strategies keep the contracts."""

from __future__ import annotations

from lakelog.testing import FlushStrategyContract, GroupFlushStrategyContract, PluginContract
from lakelog_flush import plugin
from lakelog_flush.groupcommit import GroupCommit
from lakelog_flush.settings import GroupCommitSettings, TimedSettings
from lakelog_flush.timed import Timed


class TestGroupCommit(GroupFlushStrategyContract):
    def make(self) -> GroupCommit:
        return GroupCommit(GroupCommitSettings())

    def make_hasty(self, timeout_ms: int) -> GroupCommit:
        return GroupCommit(GroupCommitSettings(timeout_ms))


class TestTimed(FlushStrategyContract):
    def make(self) -> Timed:
        return Timed(TimedSettings())


class TestTimedOften(FlushStrategyContract):
    def make(self) -> Timed:
        return Timed(TimedSettings(flush_interval_ms=1, flush_least_pages=0, fixed_rate=False))


class TestPlugin(PluginContract):
    plugin = plugin
