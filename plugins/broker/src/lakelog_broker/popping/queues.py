"""The state of one group in one queue: the messages that are out, and the offset to commit."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Final

import attrs

MAX_OUT: Final = 10_000
"""Most unacknowledged messages of a group in a queue; RocketMQ's
``popInflightMessageThreshold``."""


@attrs.define
class PopDelivery:
    """A message that is out: handed out, and not yet acknowledged.

    :ivar attempt: number of the hand-out from 1 on; earlier ones in other topics count, too
    :ivar pop_time_ms: time of the hand-out, in ms since 1970
    :ivar visible_ms: time from which it is handed out again, in ms since 1970
    :ivar start_offset: the first queue offset of the hand-out
    :ivar is_moving: whether it is being put into another topic
    :ivar is_done: whether it is acknowledged, but kept because an earlier message of an ordered
        queue is not
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
        """Whether it is handed out again at ``visible_ms``."""
        return not (self.is_moving or self.is_done)


@attrs.define(eq=False)
class PopQueue:
    """A queue of a group.

    The committed offset is the first unacknowledged one. So after a crash some messages are handed
    out again, and none is lost.

    :ivar next_offset: queue offset of the first message that was never handed out
    :ivar committed: the offset that was committed last
    :ivar out: the messages that are out, by queue offset, in ascending order
    :ivar has_more: whether the last read stopped before the end of the queue without a match
    :ivar is_ordered: whether the last request was ordered
    :ivar attempt_id: the ``attempt_id`` of the last ordered request
    """

    next_offset: int
    committed: int
    out: OrderedDict[int, PopDelivery] = attrs.field(factory=OrderedDict)
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
        """Time of the next repeated hand-out, in ms since 1970; ``None`` without one."""
        self._drop_outdated()
        return self._times[0][0] if self._times else None

    def add(self, offset: int, delivery: PopDelivery) -> None:
        """Note a hand-out, or the new ``visible_ms`` of one."""
        self.out[offset] = delivery
        heapq.heappush(self._times, (delivery.visible_ms, offset))

    def take_due(self, now_ms: int) -> int | None:
        """Return the offset of a message whose invisible time is over, once; else ``None``."""
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
        """Whether a later message is acknowledged, while the one at ``offset`` is not."""
        return offset < self._acknowledged

    def acknowledge(self, offset: int) -> None:
        """Acknowledge a message.

        In an ordered queue it is kept until all earlier messages are acknowledged. If one of them
        is handed out again, the later ones follow it again, as with RocketMQ.
        """
        if self.is_ordered and offset != next(iter(self.out), offset):
            self.out[offset].is_done = True
        else:
            self.remove(offset)

    def remove(self, offset: int) -> PopDelivery | None:
        """Remove a message that is done, and the done messages that then are the first ones."""
        found = self.out.pop(offset, None)
        if found is not None:
            self._acknowledged = max(self._acknowledged, offset)
        while self.out and next(iter(self.out.values())).is_done:
            self.out.popitem(last=False)
        return found
