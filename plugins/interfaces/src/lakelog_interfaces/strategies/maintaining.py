"""The maintenance of an open store: runs its cleaner and its disk-space watcher, and acts on them.

A cleaner and a watcher only decide. The maintenance deletes the segments, with their part of queues
and index, and pauses puts. Each store has one, from the plugin that offers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, Protocol

import attrs

from lakelog_interfaces.strategies.housekeeping import Cleaner, DiskReport, DiskWatcher


@attrs.frozen
class Deleted:
    """A segment that was deleted, or would be.

    :ivar start_offset: offset of its first byte
    :ivar size_bytes: its length
    :ivar last_timestamp_ms: store time of its last message, in ms since 1970
    :ivar reason: the cleaner's reason
    :ivar pinned_by: followers that still needed it, ignored because of ``override_pins``
    """

    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    reason: str
    pinned_by: tuple[str, ...] = ()


@attrs.frozen
class KeptSegment:
    """The first chosen segment that had to stay; all behind it stay too.

    :ivar start_offset: offset of its first byte
    :ivar reason: why it stays
    """

    start_offset: int
    reason: str


@attrs.frozen
class CleaningReport:
    """The result of a cleaning.

    :ivar dry_run: whether nothing was changed
    :ivar deleted: the segments, oldest first
    :ivar kept: the segment that stopped the cleaning, if any
    :ivar min_offset: start of the log afterwards
    :ivar other_files: number of deleted files of queues and index
    :ivar topics: topics without remaining records, whose queues were removed
    """

    dry_run: bool
    deleted: tuple[Deleted, ...]
    kept: KeptSegment | None
    min_offset: int
    other_files: int = 0
    topics: tuple[str, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """The total length of the deleted segments."""
        return sum(each.size_bytes for each in self.deleted)


class Clock(Protocol):
    """The clock of maintenance; tests replace it."""

    def now_ms(self) -> int:
        """The time, in ms since 1970."""

    def monotonic_ms(self) -> int:
        """Monotonic time in ms, from an arbitrary start."""

    def wait(self, stop: Event, ms: int) -> bool:
        """Sleep for ``ms`` or until ``stop`` is set; return whether it is set."""


@attrs.frozen(kw_only=True)
class MaintainedLog:
    """The log of an open store, for its maintenance.

    :ivar directory: a ``StoreDirectory``
    :ivar reader: a ``LogReader``
    :ivar starts: returns the start offset of each present segment, in order
    :ivar segment_size_bytes: length of each segment
    :ivar cleaner: builds the configured cleaner; ``None`` if none is configured
    :ivar disk_watcher: the same for the disk-space watcher
    :ivar events: an ``Events``: notifies plugins of deletions and of the state of the disks
    :ivar clock: replaces the clock of the machine, for tests
    :ivar ask: calls a method of the :class:`Maintenance` in the process with the services, and
        returns its result as JSON values; ``None`` in that process, and in a reader
    """

    directory: Any
    reader: Any
    starts: Callable[[], Sequence[int]]
    segment_size_bytes: int
    cleaner: Callable[[], Cleaner | None]
    disk_watcher: Callable[[], DiskWatcher | None]
    events: Any
    clock: Clock | None
    ask: Callable[[str], Any] | None = None


class ServedLog(Protocol):
    """The log in the process with the services of its store, which alone may delete segments.

    :ivar log: a ``CommitLog``, with its ``segments`` and ``positions``
    :ivar health: a ``Health``: pauses the puts of this process, and fails the store
    :ivar page: a ``SharedPage``: ``set_pause`` pauses the puts of the other processes
    :ivar reput: a ``DispatchRunner``: pauses and resumes dispatching
    """

    log: Any
    health: Any
    page: Any
    reput: Any


class Maintenance(Protocol):
    """The maintenance of one open store, in its present role.

    Only the process with the services deletes. Any other process sends it a request, and a reader
    raises :class:`~lakelog.errors.StoreReadOnly`.
    """

    def disk(self) -> DiskReport | None:
        """Check how full the disks are; ``None`` without a watcher.

        In the process with the services the result pauses or resumes puts.
        """

    def look(self) -> CleaningReport | None:
        """As :meth:`delete_expired`, but delete nothing: the report of a dry run."""

    def delete_expired(self) -> CleaningReport | None:
        """Delete until the cleaner chooses nothing more; ``None`` without a cleaner.

        Raises :class:`~lakelog.errors.StoreFailed` if the store has failed, and
        :class:`~lakelog.errors.StoreClosed` after :meth:`close`.
        """

    def delete_unused_topics(self) -> list[str]:
        """Remove the queues of topics without remaining records; return the topic names."""

    def close(self) -> None:
        """Stop; a deletion of a file that has begun is completed first."""


class StoreMaintenance(Protocol):
    """Maintains open stores; a process uses at most one.

    Segments are deleted from the front, one at a time, each durably before the next. The minimum is
    raised and published before the file is deleted. A segment stays while it is not durable or not
    dispatched, or while a pin or a plugin keeps it.
    """

    def maintain(self, log: MaintainedLog, served: ServedLog) -> Maintenance:
        """Start the maintenance in the process with the services; a full disk pauses puts at once.

        Called at open, and when a process takes over the services.
        """

    def view(self, log: MaintainedLog) -> Maintenance:
        """Build the maintenance in any other process; it changes no file, and starts no thread."""
