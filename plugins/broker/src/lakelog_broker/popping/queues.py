"""One queue as one group sees it: the messages that are out, and the offset to commit."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Final

import attrs

MAX_OUT: Final = 10_000
"""Messages of a queue that a group has not acknowledged; RocketMQ's
``popInflightMessageThreshold``."""


@attrs.define
class HandOut:
    """A message that is out.

    :ivar attempt: 1 at the first hand-out, retries in other topics included
    :ivar visible_ms: ms since 1970 at which it comes again
    :ivar is_moving: whether it is being put into another topic
    :ivar is_done: whether it is acknowledged, in an ordered queue, behind one that is not
    """

    attempt: int
    pop_time_ms: int
    visible_ms: int
    invisible_ms: int
    start_offset: int
    is_moving: bool = False
    is_done: bool = False

    @property
    def comes_again(self) -> bool:
        """Whether it comes again at its time."""
        return not (self.is_moving or self.is_done)


@attrs.define(eq=False)
class PopQueue:
    """A queue of a group.

    The committed offset is the first one that is not acknowledged, so a crash hands out some
    messages again and loses none.

    :ivar next_offset: of the first message that was never handed out
    :ivar committed: the offset that was committed last
    :ivar out: by queue offset, in ascending order
    :ivar has_more: whether a read stopped before the end of the queue, for its filter
    :ivar is_ordered: whether the last hand-out was in order
    :ivar attempt_id: the client's name of the last hand-out of an ordered queue
    """

    next_offset: int
    committed: int
    out: OrderedDict[int, HandOut] = attrs.field(factory=OrderedDict)
    has_more: bool = False
    is_ordered: bool = False
    attempt_id: str = ""
    _acknowledged: int = -1
    _times: list[tuple[int, int]] = attrs.field(factory=list)

    @property
    def first_unacknowledged(self) -> int:
        """The offset to commit."""
        return next(iter(self.out), self.next_offset)

    @property
    def room(self) -> int:
        """How many more messages may be out."""
        return max(0, MAX_OUT - len(self.out))

    @property
    def due_ms(self) -> int | None:
        """The time at which the next message comes again; ``None`` if none does."""
        self._drop_outdated()
        return self._times[0][0] if self._times else None

    def add(self, offset: int, hand_out: HandOut) -> None:
        """Note a hand-out, or its new time."""
        self.out[offset] = hand_out
        heapq.heappush(self._times, (hand_out.visible_ms, offset))

    def take_due(self, now_ms: int) -> int | None:
        """The offset of a message whose time is over, or ``None``; it is returned once."""
        self._drop_outdated()
        if self._times and self._times[0][0] <= now_ms:
            return heapq.heappop(self._times)[1]
        return None

    def _drop_outdated(self) -> None:
        times = self._times
        while times:
            visible_ms, offset = times[0]
            found = self.out.get(offset)
            if found is not None and found.comes_again and found.visible_ms == visible_ms:
                return
            heapq.heappop(times)

    def holds_back(self, offset: int) -> bool:
        """Whether a later message than that at ``offset`` is done, and this one is not."""
        return offset < self._acknowledged

    def acknowledge(self, offset: int) -> None:
        """Count a message as done.

        In an ordered queue it stays until those before it are done: if one of them comes again,
        the later ones come again behind it, as with RocketMQ.
        """
        if self.is_ordered and offset != next(iter(self.out), offset):
            self.out[offset].is_done = True
        else:
            self.remove(offset)

    def remove(self, offset: int) -> HandOut | None:
        """Forget a message that is done, and the acknowledged ones behind it."""
        found = self.out.pop(offset, None)
        if found is not None:
            self._acknowledged = max(self._acknowledged, offset)
        while self.out and next(iter(self.out.values())).is_done:
            self.out.popitem(last=False)
        return found
