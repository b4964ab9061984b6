"""Disk space: cleaners choose segments to delete, watchers measure disks, sources keep segments.

A cleaner and a watcher only decide. The maintenance of an open store runs them, deletes the
segments with their part of queues and index, and pauses puts. Each store has at most one of each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum, unique
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import attrs
from attrs import validators

from lakelog.runtime.locks import LockFreeEvent


class SegmentInfo(NamedTuple):
    """One segment, as a cleaner sees it.

    :ivar start_offset: offset of its first byte
    :ivar size_bytes: its length
    :ivar last_timestamp_ms: store time of its last message, in ms since 1970
    :ivar pinned_by: names of followers that still need it
    """

    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    pinned_by: tuple[str, ...] = ()


class Deletion(NamedTuple):
    """A cleaner's decision to delete the segment at ``start_offset``, with the reason."""

    start_offset: int
    reason: str


@unique
class DiskState(Enum):
    """A disk-space watcher's rating of the disks."""

    OK = "ok"
    CLEAN = "clean"
    CLEAN_FORCIBLY = "clean-forcibly"
    STOP_WRITING = "stop-writing"


class DiskUsage(NamedTuple):
    """Usage of the file system of a path.

    :ivar path: the path
    :ivar total_bytes: used bytes plus the bytes available to users other than root
    :ivar free_bytes: bytes available to users other than root
    :ivar used_ratio: from 0 to 1
    :ivar free_inodes: number of files that can still be created; ``None`` if unlimited
    :ivar keep_free_bytes: no file is preallocated if that would leave less free space than this;
        derived from the limit at which writing stops
    """

    path: Path
    total_bytes: int
    free_bytes: int
    used_ratio: float
    free_inodes: int | None = None
    keep_free_bytes: int = 0


class DiskReport(NamedTuple):
    """The result of one observation.

    :ivar state: the action required by the fullest disk
    :ivar disks: one entry per path, in the given order
    :ivar reason: which disk exceeds which limit; empty if the state is ``OK``
    """

    state: DiskState
    disks: tuple[DiskUsage, ...] = ()
    reason: str = ""

    def of(self, path: Path) -> DiskUsage | None:
        """The usage for ``path``."""
        return next((each for each in self.disks if each.path == path), None)


class CleaningContext(NamedTuple):
    """Facts beside the segments on which a cleaner may decide.

    :ivar now_ms: ms since 1970
    :ivar disk: the watcher's rating; ``OK`` without a watcher
    :ivar manual: whether a user requested this cleaning
    :ivar free_bytes: free bytes of the fullest disk of the log, if known
    :ivar used_ratio: usage of the same disk, from 0 to 1
    """

    now_ms: int
    disk: DiskState = DiskState.OK
    manual: bool = False
    free_bytes: int | None = None
    used_ratio: float | None = None


@attrs.frozen(kw_only=True)
class DeletionRate:
    """How fast the store executes a cleaner's decisions.

    :ivar batch_max: largest number of segments per round
    :ivar interval_ms: pause between two deletions
    """

    batch_max: int = attrs.field(default=10, validator=validators.ge(1))
    interval_ms: int = attrs.field(default=100, validator=validators.ge(0))


@runtime_checkable
class Cleaner(Protocol):
    """Chooses segments to delete; the store deletes them from the front, without gaps.

    :ivar pace: how fast the store executes the decisions
    :ivar remove_empty_queues: whether queues without remaining messages are removed too
    """

    pace: DeletionRate
    remove_empty_queues: bool

    def choose(
        self, segments: Sequence[SegmentInfo], situation: CleaningContext
    ) -> Sequence[Deletion]:
        """Choose the segments to delete: a leading run of ``segments``.

        Must depend only on its arguments and its settings.

        :param segments: all sealed segments, oldest first; without the active one
        """


@runtime_checkable
class DiskWatcher(Protocol):
    """Measures the disk space of a store."""

    def observe(self, paths: Sequence[Path]) -> DiskReport:
        """Measure the disks of ``paths``; called from one thread at a time."""


@runtime_checkable
class SegmentSource(Protocol):
    """Complete sealed segments, read when an offset below the log is requested.

    Called from any thread. Raises :class:`~lakelog.errors.StoreError` if a segment cannot be read.
    """

    def starts(self) -> Sequence[int]:
        """Physical start offsets of the available segments, in order."""

    def read(self, start: int, position: int, length: int) -> bytes:
        """``length`` bytes from byte ``position`` of the segment that starts at ``start``."""


class Deleted(NamedTuple):
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


class KeptSegment(NamedTuple):
    """The first chosen segment that had to stay; all behind it stay too.

    :ivar start_offset: offset of its first byte
    :ivar reason: why it stays
    """

    start_offset: int
    reason: str


class CleaningReport(NamedTuple):
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


class Clock:
    """The clock of the maintenance of disk space; tests replace it by a subclass."""

    def now_ms(self) -> int:
        """The time, in ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic time in ms, from an arbitrary start."""
        return time.monotonic_ns() // 1_000_000

    def wait(self, stop: LockFreeEvent, ms: int) -> bool:
        """Sleep for ``ms`` or until ``stop`` is set; return whether it is set."""
        return stop.wait(ms / 1000)
