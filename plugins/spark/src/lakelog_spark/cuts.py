"""Cuts a stretch of a log into runs that single tasks read, each of a bounded size.

They are cut where segments start, which nobody has to look for, and inside of large segments
where a record is known to start.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from lakelog_spark.wanted import Span

Finds = Callable[[int, int], int | None]
"""The first known start of a record at or behind a place, before another one; or ``None``."""


def runs(part: Span, segment_size_bytes: int, most_bytes: int, finds: Finds) -> list[Span]:
    """What to read one by one; only where no record is known to start, a run is longer."""
    edges = [part.low]
    for target in _targets(part, segment_size_bytes, most_bytes):
        if target % segment_size_bytes == 0:
            edges.append(target)
            continue
        limit = min(part.end, _next_segment(target, segment_size_bytes))
        found = finds(target, limit)
        if found is not None and found > edges[-1]:
            edges.append(found)
    edges.append(part.end)
    return [Span(a, b) for a, b in pairwise(edges) if a < b]


def _targets(part: Span, segment: int, most: int) -> list[int]:
    """Where to cut, about."""
    first = part.low - part.low % segment
    if most >= segment:
        step = most // segment * segment
        return [each for each in range(first + step, part.end, step) if each > part.low]
    pieces = -(-segment // most)
    found = [
        start + number * segment // pieces
        for start in range(first, part.end, segment)
        for number in range(pieces)
    ]
    return [each for each in found if part.low < each < part.end]


def _next_segment(offset: int, segment: int) -> int:
    return offset - offset % segment + segment
