"""The strategies of the examples pass the contract kits of their kinds."""

from __future__ import annotations

from pathlib import Path

from examples.dispatch_into_sqlite import SqliteDispatcher
from examples.own_cleaner import QuotaCleaner, QuotaWatcher
from lakelog.interfaces import Cleaner, DiskWatcher, Dispatcher
from lakelog_testing import CleanerContract, DiskWatcherContract, DispatcherContract


class TestSqliteDispatcher(DispatcherContract):
    """Rows can be built again from the log, at any time and from any point."""

    def make(self, path: Path) -> Dispatcher:
        return SqliteDispatcher(path, read_only=False)

    def contents(self, dispatcher: Dispatcher) -> object:
        assert isinstance(dispatcher, SqliteDispatcher)
        return dispatcher.rows()


class TestQuotaCleaner(CleanerContract):
    """Decisions depend on the arguments alone, and respect pins."""

    def make(self) -> Cleaner:
        return QuotaCleaner(most_bytes=10 << 20)


class TestQuotaWatcher(DiskWatcherContract):
    """It measures, and changes nothing."""

    def make(self) -> DiskWatcher:
        return QuotaWatcher(most_bytes=1 << 40)
