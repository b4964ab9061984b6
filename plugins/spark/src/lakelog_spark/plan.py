"""Cuts a log into what single tasks read: one range of offsets per segment.

A record never crosses from one segment into the next, so that each stands in exactly one range.
Reads no record but those of the last segment, whose end has to be found.
"""

from __future__ import annotations

from itertools import pairwise

from pyspark.sql.datasource import InputPartition

import lakelog


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


def plan(store: lakelog.Store) -> list[LogRange]:
    """The ranges of what the store holds now."""
    size_bytes = store.settings.core.segment_size_bytes
    return ranges(store.min_offset, store.max_offset, size_bytes)
