"""Keeping house: cleaners say what may go, disk-space watchers how full it is; the store acts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique
from pathlib import Path
from typing import Protocol, runtime_checkable

import attrs
from attrs import validators


@attrs.frozen
class SegmentInfo:
    """One segment, as a cleaner sees it.

    :ivar start_offset: offset of its first byte
    :ivar size_bytes: its length
    :ivar last_timestamp_ms: store time of its last message, in ms since 1970
    :ivar readers: maps of it of which somebody still holds a view, in this process
    :ivar pinned_by: names of followers that still need it
    """

    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    readers: int = 0
    pinned_by: tuple[str, ...] = ()


@attrs.frozen
class Deletion:
    """A cleaner's decision to delete the segment at ``start_offset``, and why.

    :ivar forced: whether readers that still hold it are not waited for
    """

    start_offset: int
    reason: str
    forced: bool = False


@unique
class DiskState(Enum):
    """What a disk-space watcher thinks of the disks."""

    OK = "ok"
    CLEAN = "clean"
    CLEAN_FORCIBLY = "clean-forcibly"
    STOP_WRITING = "stop-writing"


@attrs.frozen
class DiskUsage:
    """How full the file system is that a path stands on.

    :ivar path: the path that was asked about
    :ivar total_bytes: what others than root may use of it, and what is used
    :ivar free_bytes: what others than root may still use
    :ivar used_ratio: from 0 to 1
    :ivar free_inodes: how many files can still be made; ``None`` where there is no such limit
    :ivar keep_free_bytes: no file is made ahead of need that would leave less than this free: what
        the line comes to here from which on writing stops
    """

    path: Path
    total_bytes: int
    free_bytes: int
    used_ratio: float
    free_inodes: int | None = None
    keep_free_bytes: int = 0


@attrs.frozen
class DiskReport:
    """What a watcher saw.

    :ivar state: what to do, by the fullest
    :ivar disks: one for each path, in the order in which they were given
    :ivar reason: what is above which line; empty while the state is ``OK``
    """

    state: DiskState
    disks: tuple[DiskUsage, ...] = ()
    reason: str = ""

    def of(self, path: Path) -> DiskUsage | None:
        """What was seen at ``path``."""
        return next((each for each in self.disks if each.path == path), None)


@attrs.frozen
class Situation:
    """What a cleaner may go by beside the segments.

    :ivar now_ms: ms since 1970
    :ivar disk: what the watcher says; ``OK`` where there is none
    :ivar manual: whether a person asked for it now
    :ivar free_bytes: of the fullest disk that the log stands on, if that is known
    :ivar used_ratio: of the same, from 0 to 1
    """

    now_ms: int
    disk: DiskState = DiskState.OK
    manual: bool = False
    free_bytes: int | None = None
    used_ratio: float | None = None


@attrs.frozen(kw_only=True)
class Pace:
    """How fast the store may act on a cleaner's decisions.

    :ivar batch_max: at most so many segments a round
    :ivar interval_ms: pause between two of them
    :ivar destroy_forcibly_after_ms: a segment that readers hold waits so long, then goes: what they
        hold stays readable to them, and whoever comes later gets an error
    """

    batch_max: int = attrs.field(default=10, validator=validators.ge(1))
    interval_ms: int = attrs.field(default=100, validator=validators.ge(0))
    destroy_forcibly_after_ms: int = attrs.field(default=120_000, validator=validators.ge(0))


@runtime_checkable
class Cleaner(Protocol):
    """Chooses what to delete; the store deletes, from the front and never leaving a gap.

    :ivar pace: how fast the store may act
    :ivar remove_empty_queues: whether queues of topics of which nothing is left go too
    """

    pace: Pace
    remove_empty_queues: bool

    def choose(self, segments: Sequence[SegmentInfo], situation: Situation) -> Sequence[Deletion]:
        """Decide which segments may go: a run of ``segments`` from the first one on.

        Goes by nothing but its arguments and its settings.

        :param segments: all sealed ones, oldest first; the active one is not among them
        """


@runtime_checkable
class DiskWatcher(Protocol):
    """Watches the space on the disks of a store."""

    def observe(self, paths: Sequence[Path]) -> DiskReport:
        """Look at the disks that ``paths`` stand on; called from one thread at a time."""
