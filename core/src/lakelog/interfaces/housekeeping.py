"""Keeping house: cleaners and disk-space watchers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique
from pathlib import Path
from typing import Protocol, runtime_checkable

import attrs


@attrs.frozen
class SegmentInfo:
    """One segment, as a cleaner sees it.

    :ivar start_offset: offset of its first byte
    :ivar size_bytes: its length
    :ivar last_timestamp_ms: store time of its last message, in ms since 1970
    :ivar readers: views of it that are still held
    :ivar pinned_by: names of followers that still need it
    """

    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    readers: int = 0
    pinned_by: tuple[str, ...] = ()


@attrs.frozen
class Deletion:
    """A cleaner's decision to delete the segment at ``start_offset``, and why."""

    start_offset: int
    reason: str


@unique
class DiskState(Enum):
    """What a disk-space watcher thinks of the disks."""

    OK = "ok"
    CLEAN = "clean"
    CLEAN_FORCIBLY = "clean-forcibly"
    STOP_WRITING = "stop-writing"


@runtime_checkable
class Cleaner(Protocol):
    """Chooses what to delete; the store deletes, from the front and never leaving a gap."""

    def choose(
        self, segments: Sequence[SegmentInfo], state: DiskState, now_ms: int
    ) -> Sequence[Deletion]:
        """Decide which segments may go, oldest first; the active one is not among them."""


@runtime_checkable
class DiskWatcher(Protocol):
    """Watches the space on the disks of a store."""

    def observe(self, paths: Sequence[Path]) -> DiskState:
        """The state of the fullest of the disks that ``paths`` stand on."""
