"""The input to every way of opening a store: settings, plugins, and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from lakelog.consumers.offsettable import OffsetTable
from lakelog.dispatch.arrivals import ArrivalSignal
from lakelog.dispatch.run import NamedDispatcher
from lakelog.files.filesystem import FileSystem
from lakelog.files.shared.ownership import is_followed
from lakelog.files.state.tombstones import TombstoneFile
from lakelog.housekeeping.clock import Clock, SystemClock
from lakelog.interfaces import Context
from lakelog.log.reading.log_reader import LogReader
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog.store.strategies import with_accelerator

if TYPE_CHECKING:
    from lakelog.reading.finder import Finder


@attrs.frozen
class OpenRequest:
    """A store about to be opened; its files are not touched yet."""

    path: Path
    settings: Settings
    registry: Registry
    files: FileSystem
    clock: Clock = attrs.field(factory=SystemClock)

    def context(self, *, read_only: bool) -> Context:
        """Build the context for making strategies."""
        context = Context(
            self.path,
            self.settings.core,
            self.files,
            read_only=read_only,
            owner_follows=read_only and is_followed(self.files, self.path),
        )
        return with_accelerator(self.registry, self.settings, context)

    def finder(
        self,
        reader: LogReader,
        dispatchers: Sequence[NamedDispatcher],
        arrivals: ArrivalSignal,
        refresh: Callable[[], None] | None = None,
    ) -> Callable[[], Finder]:
        """Return a function that builds the finder of messages."""

        def make() -> Finder:
            from lakelog.reading.finder import Finder  # brings NumPy

            entries = self.settings.section("consume-queue").file_entries
            alone = refresh is None  # this process has the services, of which one writes them
            buried = TombstoneFile(self.files, self.path, alone=alone).end_of
            return Finder.over(self.path, reader, dispatchers, arrivals, entries, buried, refresh)

        return make

    def offsets(self, *, read_only: bool) -> OffsetTable:
        """The table of the consumers' committed offsets."""
        return OffsetTable(self.files, self.path, read_only=read_only)
