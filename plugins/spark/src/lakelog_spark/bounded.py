"""Where a batch of bounded size ends: at a known start of a record, or where the log does."""

from __future__ import annotations

from lakelog_spark.landmarks import MANY, Landmarks
from lakelog_spark.wanted import Span


def batch_end(marks: Landmarks, part: Span, most_bytes: int | None, most_rows: int | None) -> int:
    """How far a batch from ``part.low`` on goes, ``part.end`` at most.

    A batch always gets on: a record, or a stretch that no queue leads into, is never cut.
    """
    if part.low >= part.end:
        return part.end
    end = part.end
    if most_bytes is not None:
        end = min(end, _cut(marks, part, part.low + most_bytes))
    if most_rows is not None:
        end = min(end, _cut(marks, part, _behind_rows(marks, Span(part.low, end), most_rows)))
    return end


def _cut(marks: Landmarks, part: Span, target: int) -> int:
    """The last known start of a record up to ``target``, or else the first one behind it."""
    if target >= part.end:
        return part.end
    before = marks.before(target, part.low)
    if before > part.low:
        return before
    behind = marks.behind(max(target, part.low + 1), part.end, MANY)
    later = [each for each in marks.starts if part.low < each < part.end]
    return min([each for each in (behind, *later) if each is not None], default=part.end)


def _behind_rows(marks: Landmarks, part: Span, most: int) -> int:
    """The place up to which at most ``most`` records have units."""
    low, high = part.low, part.end
    if _rows(marks, part) <= most:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if _rows(marks, Span(part.low, middle)) <= most:
            low = middle
        else:
            high = middle
    return low


def _rows(marks: Landmarks, part: Span) -> int:
    return sum(
        each.first_from(part.end) - each.first_from(part.low)
        for each in marks.queues
        if not each.queue[0].startswith("%LMQ%")  # its messages stand in queues of their own, too
    )
