"""Cuts a log into what single tasks read: one range of offsets per segment.

A record never crosses from one segment into the next, so that each stands in exactly one range.
Reads no record but those of the last segment, whose end has to be found.
"""

from __future__ import annotations

import logging
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

import lakelog
from lakelog_spark.errors import NotKnown
from lakelog_spark.options import READABLE

_log = logging.getLogger("lakelog_spark")


class LogRange(InputPartition):
    """Records that start from ``start`` up to ``end``, offsets in the log in bytes."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


def ranges(start: int, end: int, segment_size_bytes: int) -> list[LogRange]:
    """One range per segment; what is appended behind ``end`` later belongs to none."""
    first = start - start % segment_size_bytes
    edges = [start, *range(first + segment_size_bytes, end, segment_size_bytes), end]
    return [LogRange(a, b) for a, b in pairwise(edges) if a < b]


def plan(store: lakelog.Store, until: str | None = None) -> list[LogRange]:
    """The ranges of what the store holds now, ``until`` as :class:`ReadOptions` has it.

    Raises :class:`~lakelog_spark.errors.NotKnown` for ``flushed`` where that is not known.
    """
    size_bytes = store.settings.core.segment_size_bytes
    return ranges(store.min_offset, _end(store, until), size_bytes)


def _end(store: lakelog.Store, until: str | None) -> int:
    """What leaves the store must not be taken back by a crash: it stops at what is durable."""
    if until == READABLE or (until is None and not store.is_flushed_known):
        return store.max_offset
    if not store.is_flushed_known:
        raise NotKnown(store.path)
    flushed, readable = store.flushed_offset, store.max_offset
    if flushed < readable:
        _log.warning(
            "%s: %d bytes are not durable yet and are left out; flush or close the store, or give "
            "option until=readable",
            store.path,
            readable - flushed,
        )
    return flushed
