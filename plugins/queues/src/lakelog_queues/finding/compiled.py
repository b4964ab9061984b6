"""Passes simple lookups to compiled code, which reads units or the key index, and then messages.

The result is the same as that of the other modules of :mod:`lakelog_queues.finding`. These handle
the calls that compiled code declines: calls to batch queues, to queues with extension files or with
replacement units from a repair, calls that span two unit files, and calls that meet damage, a body
decoder or an archive.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs

from lakelog.accelerate import current
from lakelog.files.pages import shared_page as sharedpage
from lakelog.format.queue_offsets import Queue
from lakelog.interfaces import HashChains, HashFiles
from lakelog.log.open_segment import Viewable
from lakelog.log.reading.bounds import OwnedBounds
from lakelog.log.reading.log_reader import LogReader
from lakelog.log.reading.sources import FileSource, ReadBounds, ViewSource
from lakelog_queues.finding.fast_path import MOST_MESSAGES
from lakelog_queues.finding.results import GetResult, GetStatus
from lakelog_queues.finding.selection import FILTERED_UNITS, MOST_BYTES
from lakelog_queues.lookups import NO_LOOKUPS, Lookups


@runtime_checkable
class PlainQueues(Protocol):
    """Queues whose unit files compiled code may read directly."""

    def plain(
        self, queue: Queue, minimum: int, offset: int | None
    ) -> tuple[int, int, Any, int, int] | None:
        """The place of the unit of queue offset ``offset``; see ``SimpleQueue.plain``."""


@attrs.frozen
class MappedSegments:
    """The log of an owner, as compiled code reads it.

    :ivar memory: the shared page
    :ivar open_segments: see :class:`~lakelog.log.segments.Segments`
    :ivar segment_bytes: length of each segment
    """

    memory: memoryview
    open_segments: dict[int, Viewable]
    segment_bytes: int


@attrs.frozen
class SegmentFiles:
    """The log in a process that does not own it, as compiled code reads it.

    :ivar folder: the directory of the segments
    :ivar segment_bytes: length of each segment
    """

    bounds: ReadBounds
    folder: Path
    segment_bytes: int


ReadLog: TypeAlias = MappedSegments | SegmentFiles


def readable(log: LogReader) -> ReadLog | None:
    """A log for direct reads by compiled code; ``None`` if records are not served as stored.

    That is the case with known damage, or with a decoder.
    """
    source, bounds = log.source, log.bounds
    if log.known_damage or log.decoder is not None:
        return None
    if isinstance(source, FileSource):
        folder = source.folder()
        return None if folder is None else SegmentFiles(bounds, folder, source.size_bytes)
    if not (type(source) is ViewSource and type(bounds) is OwnedBounds):
        return None
    words, segments = bounds.positions.words, source.segments
    if not isinstance(words, memoryview):
        return None
    return MappedSegments(words.cast("B"), segments.open_segments, segments.size_bytes)


@attrs.frozen(kw_only=True)
class LookupParts:
    """The parts of a store that compiled code needs to look messages up.

    :ivar log: gives access to the bytes of the log
    :ivar plain: see :class:`PlainQueues`; ``None`` if the queues cannot be read directly
    :ivar hash_files: see :class:`~lakelog.interfaces.HashFiles`; ``None`` without such an index
    :ivar buried: returns the physical offset below which records of a topic do not count, because
        the topic was removed
    :ivar refresh: brings queues and index up to date; ``None`` if another thread or process does
    :ivar layout: the module that defines the positions of the words in the shared page
    :ivar most_messages: the limit of one call; more are left to Python
    :ivar most_bytes: the limit of one call, for all records together
    :ivar filtered_units: the least number of units that a call with tags examines
    :ivar result: the class of the result
    :ivar status: the status of a result with messages
    :ivar no_match: the status of a result without a matching message
    """

    log: ReadLog
    plain: Callable[[Queue, int, int | None], object] | None
    hash_files: Callable[[], HashChains | None] | None
    buried: Callable[[str], int]
    refresh: Callable[[], None] | None = None
    layout: ModuleType = sharedpage
    most_messages: int = MOST_MESSAGES
    most_bytes: int = MOST_BYTES
    filtered_units: int = FILTERED_UNITS
    result: type[GetResult] = GetResult
    status: GetStatus = GetStatus.FOUND
    no_match: GetStatus = GetStatus.NO_MATCHED_MESSAGE


def lookups(
    queues: object,
    index: object,
    log: LogReader,
    tombstone_of: Callable[[str], int],
    refresh: Callable[[], None] | None,
) -> Lookups:
    """The lookups of this process's accelerator, or ones that always fall back to Python."""
    accelerator, read_log = current(), readable(log)
    if accelerator is None or read_log is None:
        return NO_LOOKUPS
    parts = LookupParts(
        log=read_log,
        plain=queues.plain if isinstance(queues, PlainQueues) else None,
        hash_files=index.hash_files if isinstance(index, HashFiles) else None,
        buried=tombstone_of,
        refresh=refresh,
    )
    return accelerator.lookups(parts) or NO_LOOKUPS
