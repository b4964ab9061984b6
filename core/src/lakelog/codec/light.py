"""A record that feeds light queues; its length is known only inside the append lock.

Its offsets in those queues are stored in one of its properties. Source: ``LmqDispatch`` and
``handlePropertiesForLmqMsg`` of RocketMQ 5.3.3. Names in ``INNER_MULTI_DISPATCH`` that are not
light queues get no offset, as in RocketMQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from lakelog.codec.limits import Limits
from lakelog.codec.messageproperties import ended
from lakelog.codec.one import EncodedRecord
from lakelog.codec.recordcrc import PLACEHOLDER
from lakelog.errors import IllegalMessage, PutRefused
from lakelog.format.layout import AT_SIZE
from lakelog.format.properties import (
    INNER_MULTI_QUEUE_OFFSET,
    MULTI_DISPATCH_SEPARATOR,
    encode_properties,
)
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.status import AppendStatus, PutStatus

_SIZE: Final = Struct(">i")
_SHORT: Final = Struct(">H")
_APPEND_STATUS: Final = {
    PutStatus.PROPERTIES_SIZE_EXCEEDED: AppendStatus.PROPERTIES_SIZE_EXCEEDED,
    PutStatus.MESSAGE_SIZE_EXCEEDED: AppendStatus.MESSAGE_SIZE_EXCEEDED,
}


class EncodedLightQueueRecord(EncodedRecord):
    """One record whose property string is completed when it is placed."""

    __slots__ = ("_front", "_limits", "_max_light_queues", "_properties", "_topics")

    def __init__(
        self,
        one: EncodedRecord,
        properties_bytes: int,
        topics: Sequence[str],
        limits: Limits,
        max_light_queues: int,
    ) -> None:
        super().__init__(one.buffer, one.queue, one.queued, one.wait, one._hosts, one._sealed)
        split = len(one.buffer) - properties_bytes
        self._front = bytes(one.buffer[: split - _SHORT.size])
        self._properties = bytes(one.buffer[split:]).removesuffix(PLACEHOLDER)
        self._topics = topics
        self._limits = limits
        self._max_light_queues = max_light_queues

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Write the offsets in the light queues, then place it like any other record."""
        self._refuse_too_many(queue_offsets)
        numbers = [str(queue_offsets.next((topic, 0))) for topic in self._topics]
        properties = ended(self._properties) + encode_properties(
            {INNER_MULTI_QUEUE_OFFSET: MULTI_DISPATCH_SEPARATOR.join(numbers)}
        )
        try:
            self._finish(properties + PLACEHOLDER if self._sealed else properties)
        except IllegalMessage as error:
            return _APPEND_STATUS[error.status]
        return super().place(position, remaining, queue_offsets, now_ms)

    def _finish(self, properties: bytes) -> None:
        buffer = bytearray().join((self._front, _SHORT.pack(len(properties) & 0xFFFF), properties))
        self._limits.check(0, len(properties), len(buffer))
        _SIZE.pack_into(buffer, AT_SIZE, len(buffer))
        self.buffer = buffer

    def _refuse_too_many(self, queue_offsets: QueueOffsets) -> None:
        found = queue_offsets.new_light_queues(set(self._topics))
        if found > self._max_light_queues:
            raise PutRefused(
                PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                f"there would be {found} light queues; {self._max_light_queues} are allowed "
                "(max_light_queues)",
            )

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Take an offset in the record's own queue and in each light queue."""
        super().advance(queue_offsets)
        for topic in self._topics:
            queue_offsets.advance((topic, 0), 1)
