"""The waiting timer messages: the due time and the queue offset of each."""

from __future__ import annotations

import heapq
from array import array
from typing import Final

_MINUTE_MS: Final = 60_000
_OFFSET_BITS: Final = 47
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


class TimerTable:
    """A priority queue of pairs of a due time (ms since 1970) and a queue offset.

    A pair of a future minute takes 8 bytes: the milliseconds within the minute, and the offset, are
    packed into one integer. Only the pairs of minutes that have begun are in a heap; these take
    about 45 bytes each.
    """

    def __init__(self) -> None:
        self._later: dict[int, array[int]] = {}  # by minute
        self._lowest: dict[int, int] = {}  # lowest queue offset, by minute
        self._minutes: list[int] = []  # a heap of the keys of _later
        self._begun: list[int] = []  # a heap of packed pairs with times in ms since 1970
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, offset: int, now_ms: int) -> None:
        """Add a pair; ``now_ms`` is the present time in ms since 1970."""
        self._count += 1
        minute, ms = divmod(due_ms, _MINUTE_MS)
        if minute * _MINUTE_MS <= now_ms:
            heapq.heappush(self._begun, due_ms << _OFFSET_BITS | offset)
            return
        pairs = self._later.get(minute)
        if pairs is None:
            pairs = self._later[minute] = array("q")
            heapq.heappush(self._minutes, minute)
            self._lowest[minute] = offset
        self._lowest[minute] = min(offset, self._lowest[minute])
        pairs.append(ms << _OFFSET_BITS | offset)

    def take(self, now_ms: int) -> tuple[int, int] | None:
        """Remove and return the earliest pair that is due; ``None`` if no pair is due."""
        self._begin(now_ms)
        if not self._begun or self._begun[0] >> _OFFSET_BITS > now_ms:
            return None
        self._count -= 1
        pair = heapq.heappop(self._begun)
        return pair >> _OFFSET_BITS, pair & _OFFSET_MASK

    def remove(self, due_ms: int, offset: int) -> None:
        """Remove a pair of a future minute; raises ``ValueError`` if it does not exist."""
        minute, ms = divmod(due_ms, _MINUTE_MS)
        pairs = self._later.get(minute, array("q"))
        pairs.remove(ms << _OFFSET_BITS | offset)
        self._lowest[minute] = min((pair & _OFFSET_MASK for pair in pairs), default=_OFFSET_MASK)
        self._count -= 1

    def next_ms(self, now_ms: int) -> int | None:
        """Time of the earliest pair, or the start of its minute; ``None`` without pairs."""
        self._begin(now_ms)
        if self._begun:
            return self._begun[0] >> _OFFSET_BITS
        return self._minutes[0] * _MINUTE_MS if self._minutes else None

    def lowest_offset(self) -> int | None:
        """The lowest queue offset of all pairs; ``None`` without pairs."""
        begun = min((pair & _OFFSET_MASK for pair in self._begun), default=_OFFSET_MASK)
        lowest = min(begun, *self._lowest.values(), _OFFSET_MASK)
        return None if lowest == _OFFSET_MASK else lowest

    def _begin(self, now_ms: int) -> None:
        """Move the pairs of minutes that have begun into the heap."""
        while self._minutes and self._minutes[0] * _MINUTE_MS <= now_ms:
            minute = heapq.heappop(self._minutes)
            begin_ms = minute * _MINUTE_MS
            pairs = self._later.pop(minute)
            del self._lowest[minute]
            self._begun += [
                begin_ms + (pair >> _OFFSET_BITS) << _OFFSET_BITS | pair & _OFFSET_MASK
                for pair in pairs
            ]
            heapq.heapify(self._begun)
