"""Encoded messages: records that lack only the fields that depend on their position in the log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from lakelog_format.codec.limits import Limits
from lakelog_format.codec.message_properties import ended
from lakelog_format.codec.record_crc import PLACEHOLDER, seal
from lakelog_format.errors import IllegalMessage, PutRefused
from lakelog_format.fields.layout import AT_QUEUE_OFFSET, AT_SIZE, BLANK_MIN_BYTES
from lakelog_format.fields.properties import (
    INNER_MULTI_QUEUE_OFFSET,
    LIGHT_QUEUE_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    encode_properties,
)
from lakelog_format.fields.queue_offsets import Queue, QueueOffsets
from lakelog_format.results import BatchResult, PutResult
from lakelog_format.status import AppendStatus, PutStatus

if TYPE_CHECKING:
    from lakelog_format.codec.record_parts import HostPair


class EncodedBatch(ABC):
    """One or more records back to back, for a single append.

    :ivar buffer: the records; complete after :meth:`place`
    :ivar count: number of records
    :ivar wait: whether any put of the batch waits for the flush strategy
    """

    __slots__ = ("buffer", "count", "wait")

    buffer: bytearray
    count: int
    wait: bool

    @abstractmethod
    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Fill in queue offsets, physical offsets, store time and record checksums.

        :param position: physical offset of the batch, in bytes
        :param remaining: bytes left in the segment
        :param now_ms: the store time, in ms since 1970
        :returns: ``END_OF_FILE`` if the batch does not fit into the segment
        """

    @abstractmethod
    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Advance the queue offsets that :meth:`place` used, after the bytes were written."""

    @abstractmethod
    def results(self, status: PutStatus) -> Sequence[PutResult]:
        """The result of each message, in order; valid only after :meth:`place`."""


_pack_offsets: Final = Struct(">qq").pack_into
_pack_long: Final = Struct(">q").pack_into
# Access to enum members costs a tenth of a microsecond each in Python 3.11.
_PUT_OK: Final = AppendStatus.PUT_OK
_END_OF_FILE: Final = AppendStatus.END_OF_FILE


@attrs.define(slots=True, weakref_slot=False, eq=False)
class EncodedRecord(EncodedBatch):
    """One record.

    :ivar queue: topic and queue id
    :ivar queued: whether the record takes a queue offset
    :ivar hosts: born host and store host
    :ivar sealed: whether the record ends with a record checksum
    :ivar queue_offset: 0 without a queue; set by :meth:`place`, as are the next two
    :ivar physical_offset: in bytes from the start of the log
    :ivar store_timestamp_ms: in ms since 1970
    """

    buffer: bytearray
    queue: Queue
    queued: bool
    wait: bool
    hosts: HostPair
    sealed: bool
    count: int = attrs.field(default=1, init=False)
    queue_offset: int = attrs.field(init=False)
    physical_offset: int = attrs.field(init=False)
    store_timestamp_ms: int = attrs.field(init=False)

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Write both offsets and the store time into the record, then its checksum."""
        buffer = self.buffer
        if len(buffer) + BLANK_MIN_BYTES > remaining:
            return _END_OF_FILE
        queue_offset = queue_offsets.next(self.queue) if self.queued else 0
        _pack_offsets(buffer, AT_QUEUE_OFFSET, queue_offset, position)
        _pack_long(buffer, self.hosts.store_time_at, now_ms)
        if self.sealed:
            seal(buffer, 0, len(buffer))
        self.queue_offset = queue_offset
        self.physical_offset = position
        self.store_timestamp_ms = now_ms
        return _PUT_OK

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Advance the queue by one, unless the record belongs to no queue."""
        if self.queued:
            queue_offsets.advance(self.queue, 1)

    @property
    def store_host(self) -> str:
        """The host in the message's id."""
        return self.hosts.store_host

    def result(self, status: PutStatus) -> PutResult:
        """The result of the put."""
        topic, queue_id = self.queue
        return PutResult(
            status,
            topic,
            queue_id,
            self.queue_offset,
            self.physical_offset,
            len(self.buffer),
            self.store_timestamp_ms,
            self.hosts.store_host,
        )

    def results(self, status: PutStatus) -> list[PutResult]:
        """The one result, as a sequence."""
        return [self.result(status)]


COLUMNS_FROM: Final = 48
"""Batches of at least this many messages return their results in columns."""


class Tentative(QueueOffsets):
    """The queue offsets after the preceding pieces of a batch, which are not written yet."""

    __slots__ = ("_base",)

    def __init__(self, base: QueueOffsets) -> None:
        super().__init__()
        self._base = base

    def next(self, queue: Queue) -> int:
        """The next offset, including advances made here."""
        return self._base.next(queue) + super().next(queue)

    def new_light_queues(self, topics: Iterable[str]) -> int:
        """The number of light queues, including those advanced here."""
        added = {topic for topic, _ in self._next if topic.startswith(LIGHT_QUEUE_PREFIX)}
        return self._base.new_light_queues(added.union(topics))


class EncodedRecordList(EncodedBatch):
    """Several records, each an :class:`EncodedRecord` of its own."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[EncodedRecord]) -> None:
        self._pieces = pieces
        self.count = len(pieces)
        self.wait = any(piece.wait for piece in pieces)
        self.buffer = bytearray().join(piece.buffer for piece in pieces)

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Place all pieces one after the other in this segment, or none of them."""
        # The store advances `queue_offsets` only after the write. Until then, pieces of the same
        # queue take consecutive offsets from a table laid over it.
        tentative = Tentative(queue_offsets)
        at = position
        for piece in self._pieces:
            status = piece.place(at, remaining - (at - position), tentative, now_ms)
            if status is not AppendStatus.PUT_OK:
                return status
            piece.advance(tentative)
            at += len(piece.buffer)
        self.buffer = bytearray().join(piece.buffer for piece in self._pieces)
        return AppendStatus.PUT_OK

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Advance the queue offsets of all pieces."""
        for piece in self._pieces:
            piece.advance(queue_offsets)

    def results(self, status: PutStatus) -> Sequence[PutResult]:
        """One result per piece; for large batches, as columns."""
        pieces = self._pieces
        if len(pieces) < COLUMNS_FROM:
            return [piece.result(status) for piece in pieces]
        import numpy as np  # few batches are large

        return BatchResult(
            status,
            [piece.queue for piece in pieces],
            np.array([piece.queue_offset for piece in pieces], np.int64),
            np.array([piece.physical_offset for piece in pieces], np.int64),
            np.array([len(piece.buffer) for piece in pieces], np.int64),
            pieces[0].store_timestamp_ms,
            [piece.store_host for piece in pieces],
        )


_SIZE: Final = Struct(">i")
_SHORT: Final = Struct(">H")
_APPEND_STATUS: Final = {
    PutStatus.PROPERTIES_SIZE_EXCEEDED: AppendStatus.PROPERTIES_SIZE_EXCEEDED,
    PutStatus.MESSAGE_SIZE_EXCEEDED: AppendStatus.MESSAGE_SIZE_EXCEEDED,
}


class EncodedLightQueueRecord(EncodedRecord):
    """A record that feeds light queues; its length is known only inside the append lock.

    Its offsets in those queues are stored in one of its properties. Source: ``LmqDispatch`` and
    ``handlePropertiesForLmqMsg`` of RocketMQ 5.3.3. Names in ``INNER_MULTI_DISPATCH`` that are not
    light queues get no offset, as in RocketMQ.
    """

    __slots__ = ("_front", "_limits", "_max_light_queues", "_properties", "_topics")

    def __init__(
        self,
        one: EncodedRecord,
        properties_bytes: int,
        topics: Sequence[str],
        limits: Limits,
        max_light_queues: int,
    ) -> None:
        super().__init__(one.buffer, one.queue, one.queued, one.wait, one.hosts, one.sealed)
        split = len(one.buffer) - properties_bytes
        self._front = bytes(one.buffer[: split - _SHORT.size])
        self._properties = bytes(one.buffer[split:]).removesuffix(PLACEHOLDER)
        self._topics = topics
        self._limits = limits
        self._max_light_queues = max_light_queues

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Write the offsets in the light queues, then place it like any other record.

        Raises :class:`~lakelog_format.errors.PutRefused` for too many light queues.
        """
        self._refuse_too_many(queue_offsets)
        numbers = [str(queue_offsets.next((topic, 0))) for topic in self._topics]
        properties = ended(self._properties) + encode_properties(
            {INNER_MULTI_QUEUE_OFFSET: MULTI_DISPATCH_SEPARATOR.join(numbers)}
        )
        try:
            self._finish(properties + PLACEHOLDER if self.sealed else properties)
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
