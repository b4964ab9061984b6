"""Cuts a range of a log into parts of bounded size, one per task.

Cuts are made at the starts of segments, which need no search, and inside of large segments at known
starts of records.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from lakelog_lake.log.record_starts import MANY, RecordStarts
from lakelog_lake.log.wanted import NumberSpan

Finds = Callable[[int, int], int | None]
"""Returns the first known start of a record in a range of offsets, or ``None``."""


def runs(
    part: NumberSpan, segment_size_bytes: int, most_bytes: int, finds: Finds
) -> list[NumberSpan]:
    """Split ``part``; a piece exceeds ``most_bytes`` only if no record start is known inside.

    :param finds: finds the first known record start in a range
    """
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
    return [NumberSpan(a, b) for a, b in pairwise(edges) if a < b]


def _targets(part: NumberSpan, segment: int, most: int) -> list[int]:
    """Approximate offsets of cuts."""
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


def batch_end(
    marks: RecordStarts, part: NumberSpan, most_bytes: int | None, most_rows: int | None
) -> int:
    """The end of a batch that starts at ``part.low``; at most ``part.end``.

    A batch is never empty: a record, and a range without known record starts, is not cut.
    """
    if part.low >= part.end:
        return part.end
    end = part.end
    if most_bytes is not None:
        end = min(end, _cut(marks, part, part.low + most_bytes))
    if most_rows is not None:
        end = min(end, _cut(marks, part, _behind_rows(marks, NumberSpan(part.low, end), most_rows)))
    return end


def _cut(marks: RecordStarts, part: NumberSpan, target: int) -> int:
    """The last known start of a record up to ``target``, else the first one behind it."""
    if target >= part.end:
        return part.end
    before = marks.before(target, part.low)
    if before > part.low:
        return before
    behind = marks.behind(max(target, part.low + 1), part.end, MANY)
    later = [each for each in marks.starts if part.low < each < part.end]
    return min([each for each in (behind, *later) if each is not None], default=part.end)


def _behind_rows(marks: RecordStarts, part: NumberSpan, most: int) -> int:
    """The largest offset before which at most ``most`` records have units."""
    low, high = part.low, part.end
    if _rows(marks, part) <= most:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if _rows(marks, NumberSpan(part.low, middle)) <= most:
            low = middle
        else:
            high = middle
    return low


def _rows(marks: RecordStarts, part: NumberSpan) -> int:
    return sum(
        each.first_from(part.end) - each.first_from(part.low)
        for each in marks.queues
        if not each.queue[0].startswith("%LMQ%")  # light queues repeat messages
    )
