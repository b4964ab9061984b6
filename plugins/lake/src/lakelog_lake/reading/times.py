"""Finds the part of a log with the records of a time span, from the headers of a few records.

Store times increase along the log, except where a clock was set back. So a minute is added on both
sides; the times of the records themselves are compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lakelog_lake.log.queue_files import QueueFiles
from lakelog_lake.log.record_starts import RecordStarts
from lakelog_lake.log.wanted import LAST, NumberSpan

SLACK_MS: Final = 60_000


def part_of_times(
    marks: RecordStarts, part: NumberSpan, times_ms: NumberSpan, slack_ms: int = SLACK_MS
) -> NumberSpan:
    """The bytes of ``part`` that can hold records stored in ``times_ms``."""
    low, end = part.low, part.end
    if times_ms.low > slack_ms:
        low = _edge(marks, part, times_ms.low - slack_ms)[0]
    if times_ms.end < LAST - slack_ms:
        end = _edge(marks, part, times_ms.end + slack_ms)[1]
    return NumberSpan(low, max(low, end))


def _edge(marks: RecordStarts, part: NumberSpan, time_ms: int) -> tuple[int, int]:
    """Offsets of a known record older than ``time_ms``, and of the next one that is not older."""
    starts = [part.low, *(each for each in marks.starts if part.low < each < part.end)]

    def is_older(offset: int) -> bool | None:
        message = marks.message(offset)
        return None if message is None else message.store_timestamp_ms < time_ms

    before, behind = _narrow(0, len(starts), lambda at: is_older(starts[at]))
    low = starts[max(before, 0)]
    end = starts[behind] if behind < len(starts) else part.end
    for queue in marks.longest[:1]:
        low, end = _edge_in(queue, NumberSpan(low, end), is_older)
    return low, end


def _edge_in(
    queue: QueueFiles, part: NumberSpan, is_older: Callable[[int], bool | None]
) -> tuple[int, int]:
    """As :func:`_edge`, among the records of one queue."""
    first = queue.first_from(part.low)
    count = queue.first_from(part.end, first) - first
    low, end = part.low, part.end

    def place(at: int) -> int:
        found = queue.place(first + at)
        return -1 if found is None else found[0]

    before, behind = _narrow(0, count, lambda at: is_older(place(at)))
    if before >= 0:
        low = max(low, place(before))
    if behind < count:
        end = min(end, place(behind))
    return low, end


def _narrow(low: int, high: int, is_older: Callable[[int], bool | None]) -> tuple[int, int]:
    """The last index that is older, or ``low - 1``; and the first that is not, or ``high``.

    An index whose record cannot be read ends the search early.
    """
    before, behind = low - 1, high
    while before + 1 < behind:
        middle = (before + behind) // 2
        older = is_older(middle)
        if older is None:
            break
        before, behind = (middle, behind) if older else (before, middle)
    return before, behind
