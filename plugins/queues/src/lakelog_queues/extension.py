"""The store extension ``queues``: the resources of a store's queue methods, for each role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lakelog.interfaces import DispatchedLog
from lakelog.runtime.cached import cached_property
from lakelog.store.roles.parts import RoleParts
from lakelog_queues.consumers.offsettable import OffsetTable

if TYPE_CHECKING:
    from lakelog_queues.finding.finder import Finder
    from lakelog_queues.store import Store


@attrs.define(slots=False, eq=False)
class QueueParts:
    """Finds messages in one role of a store.

    :ivar offsets: the committed offsets of consumer groups
    """

    log: DispatchedLog
    offsets: OffsetTable

    @cached_property
    def finder(self) -> Finder:
        """The finder of messages, built at the first query, since it imports NumPy."""
        from lakelog_queues.finding.finder import Finder

        log, entries = self.log, self.log.settings.section("consume-queue").file_entries
        return Finder.over(
            log.path,
            log.reader,
            list(log.dispatchers.values()),
            log.arrivals,
            entries,
            log.removed_before,
            log.refresh,
        )

    def close(self) -> None:
        """Write pending commits of consumer groups; close files."""
        if "finder" in self.__dict__:
            self.finder.lookups.close()
        self.offsets.close()


class QueueExtension:
    """Adds the queue methods of :class:`lakelog.Store` to open stores."""

    @property
    def store_class(self) -> type[Store]:
        """The class of open stores."""
        from lakelog_queues.store import Store

        return Store

    def extend(self, log: DispatchedLog) -> QueueParts:
        """Build the resources for one role."""
        return QueueParts(log, OffsetTable(log.files, log.path, read_only=log.read_only))


def queue_parts(parts: RoleParts) -> QueueParts:
    """The resources of the queue methods in one role of a store."""
    assert isinstance(parts.extension, QueueParts)
    return parts.extension
