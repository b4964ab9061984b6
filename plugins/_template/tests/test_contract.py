"""The strategy does what every flush strategy must do, and what it says itself."""

from __future__ import annotations

from lakelog_template import plugin
from lakelog_template.strategy import EveryN
from lakelog_testing import FakeLog, FlushStrategyContract, PluginContract


class TestEveryN(FlushStrategyContract):
    def make(self) -> EveryN:
        return EveryN(appends=3)

    def test_one_sync_serves_so_many_appends(self, log: FakeLog) -> None:
        flush = self.make()
        flush.start(log)
        for _ in range(8):
            flush.submit(log.append(), wait=True)
        assert log.syncs == 2
        flush.close()

    def test_a_put_that_does_not_wait_leaves_the_sync_to_the_next(self, log: FakeLog) -> None:
        flush = self.make()
        flush.start(log)
        for _ in range(8):
            flush.submit(log.append(), wait=False)
        assert log.syncs == 0
        flush.submit(log.append(), wait=True)
        assert log.flushed == log.appended
        flush.close()


class TestPlugin(PluginContract):
    plugin = plugin
