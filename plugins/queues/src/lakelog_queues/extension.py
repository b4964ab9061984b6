"""The store extension ``queues``: the resources of a store's queue methods, for each role."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from lakelog.dispatch import DispatchRunner
from lakelog.hooks import DispatchedLog
from lakelog.lazy import cached_property
from lakelog.store.parts import RoleParts
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_queues.dispatching.tombstones import TombstoneFile
from lakelog_queues.readers.catch_up import ReaderWait

if TYPE_CHECKING:
    from lakelog_queues.finding.finder import Finder
    from lakelog_queues.store import Store


@attrs.define(slots=False, eq=False)
class QueueParts:
    """Finds messages in one role of a store.

    :ivar offsets: the committed offsets of consumer groups
    :ivar waits: the progress of the dispatchers, and waits for it
    """

    log: DispatchedLog
    offsets: OffsetTable
    waits: DispatchRunner | ReaderWait
    _removed: TombstoneFile

    @cached_property
    def finder(self) -> Finder:
        """The finder of messages, built at the first query, since most writers run none."""
        from lakelog_queues.finding.finder import Finder

        log, entries = self.log, self.log.settings.section("consume-queue").file_entries
        return Finder.over(
            log.path,
            log.reader,
            list(log.dispatchers.values()),
            self.waits.arrivals,
            entries,
            self._removed.end_of,
            self.waits.completion.refresh if isinstance(self.waits, ReaderWait) else None,
        )

    def close(self) -> None:
        """Write pending commits of consumer groups; close files."""
        with ExitStack() as closing:
            if isinstance(self.waits, ReaderWait):
                closing.callback(self.waits.close)
            closing.callback(self.offsets.close)
            if "finder" in self.__dict__:
                closing.callback(self.finder.lookups.close)


class QueueExtension:
    """Adds the queue methods of :class:`lakelog.Store` to open stores."""

    @property
    def store_class(self) -> type[Store]:
        """The class of open stores."""
        from lakelog_queues.store import Store

        return Store

    def extend(self, log: DispatchedLog) -> QueueParts:
        """Build the resources for one role."""
        offsets = OffsetTable(log.files, log.path, read_only=log.read_only)
        waits = log.dispatching or ReaderWait.of(log)
        # One process at a time writes tombstones: the one with the services.
        removed = TombstoneFile(log.files, log.path, alone=log.dispatching is not None)
        return QueueParts(log, offsets, waits, removed)


def queue_parts(parts: RoleParts) -> QueueParts:
    """The resources of the queue methods in one role of a store."""
    assert isinstance(parts.extension, QueueParts)
    return parts.extension
