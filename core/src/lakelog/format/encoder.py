"""From messages to records: what a record can hold, and the encoding, one record at a time.

All limits are checked before anything is encoded. A property string has tags, keys, then the other
properties. An accelerator encodes messages itself, many in one pass: a change of the encoding
needs the same change there (``rust/message.rs``), or an append callback, see ``builtin.py``.

An encoded record lacks only the fields that depend on its place in the log: queue offset, physical
offset and store time, and what follows from them. The append lock is held only to fill in these.
Many records share the pair of hosts, and the topic with its length; so both are cached.
"""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count, islice
from struct import Struct
from typing import Final, NamedTuple

import attrs

from lakelog.arguments import WrongType, WrongValue, shown, whole, wrong_type
from lakelog.errors import IllegalMessage, PutRefused
from lakelog.format import layout
from lakelog.format.checksum import PLACEHOLDER, body_crc, is_sealed, seal, without_seal
from lakelog.format.message_id import encode_host
from lakelog.format.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEYS,
    LIGHT_QUEUE_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    REAL_QUEUE,
    REAL_TOPIC,
    TAGS,
    TIMER_DELAY,
    TIMER_DELIVER,
    TIMER_OUT,
    TIMER_TOPIC,
    check_tags,
    decode_properties,
    encode_properties,
    feeds_light_queues,
    join_keys,
    light_queues,
)
from lakelog.format.queue_offsets import Queue, QueueOffsets
from lakelog.format.record import SECTOR_BYTES
from lakelog.message import Message, MessageColumns, PropertiesLike
from lakelog.results import AppendStatus, PutResult, PutStatus

_RECORD_OVERHEAD_BYTES = 64 << 10
"""How far a record may exceed the largest body, in bytes."""


class Limits(NamedTuple):
    """The largest body and the largest record, in bytes."""

    body_bytes: int
    record_bytes: int

    @classmethod
    def of(cls, max_message_size_bytes: int, segment_size_bytes: int) -> Limits:
        """The limits that follow from a setting and from the size of a segment."""
        return cls(
            max_message_size_bytes,
            min(
                max_message_size_bytes + _RECORD_OVERHEAD_BYTES,
                segment_size_bytes - layout.BLANK_MIN_BYTES,
            ),
        )

    def check(self, body_bytes: int, properties_bytes: int, record_bytes: int) -> None:
        """Raise :class:`~lakelog.errors.IllegalMessage` if one of the three is too large."""
        if body_bytes > self.body_bytes:
            raise _too_large("body", body_bytes, self.body_bytes)
        if properties_bytes > (limit := layout.MAX_PROPERTIES_BYTES):
            raise IllegalMessage(
                f"properties take {properties_bytes} bytes, the limit is {limit}",
                status=PutStatus.PROPERTIES_SIZE_EXCEEDED,
            )
        if record_bytes > self.record_bytes:
            raise _too_large("record", record_bytes, self.record_bytes)


def _too_large(what: str, found: int, limit: int) -> IllegalMessage:
    return IllegalMessage(
        f"the {what} takes {found} bytes; the limit is {limit} "
        "(max_message_size_bytes, and the length of a segment)",
        status=PutStatus.MESSAGE_SIZE_EXCEEDED,
    )


def illegal(what: str) -> IllegalMessage:
    """The error for a message that no record can hold."""
    return IllegalMessage(what, status=PutStatus.MESSAGE_ILLEGAL)


_FIELDS = {
    "queue_id": range(1 << 31),
    "flag": range(-(1 << 31), 1 << 31),
    "sys_flag": range(-(1 << 31), 1 << 31),
    "born_timestamp_ms": range(-(1 << 63), 1 << 63),
    "reconsume_times": range(-(1 << 31), 1 << 31),
    "prepared_transaction_offset": range(-(1 << 63), 1 << 63),
}
"""Valid range of each numeric field of a message."""
_NONE_ALLOWED = ("queue_id", "born_timestamp_ms")
_HOST = "a str such as '127.0.0.1:10911'"


def misfit(message: Message) -> WrongType | IllegalMessage | None:
    """The error for the first field of a wrong type or out of range; ``None`` if all are valid.

    It is called once an encoding has failed, so that good messages are not checked field by field.
    """
    for name, wanted in (("topic", "a str"), ("born_host", _HOST), ("store_host", _HOST)):
        value = getattr(message, name)
        if not isinstance(value, str) and (name == "topic" or value is not None):
            return wrong_type(name, value, wanted)
    for name, fits in _FIELDS.items():
        value = getattr(message, name)
        if value is None and name in _NONE_ALLOWED:
            continue
        try:
            whole(name, value, None)
        except WrongType as error:
            return error
        if value not in fits:
            return illegal(f"{name} is {shown(value)}; give a number from {fits[0]} to {fits[-1]}")
    return None


def encode_topic(topic: str) -> bytes:
    """The bytes of a topic.

    A topic names a directory: it must not contain ``/`` or a character below U+0020, and must not
    be ``.`` or ``..``. It takes 1 to 255 bytes.

    Raises :class:`~lakelog.errors.IllegalMessage`, and ``TypeError`` for anything but a ``str``.
    """
    if not isinstance(topic, str):
        raise wrong_type("topic", topic, "a str")
    try:
        data = topic.encode()
    except UnicodeEncodeError:
        raise illegal(f"topic {topic!r} is not a str that UTF-8 can encode") from None
    if not 0 < len(data) <= layout.MAX_TOPIC_BYTES:
        raise illegal(f"topic {topic!r} takes {len(data)} bytes, not 1 to {layout.MAX_TOPIC_BYTES}")
    if topic in (".", "..") or any(ord(char) < ord(" ") or char == "/" for char in topic):
        raise illegal(f"topic {topic!r} cannot name a directory: it holds '/', NUL or the like")
    return data


def as_body(body: object) -> bytes | memoryview:
    """``body`` as contiguous bytes of a fixed length.

    Raises :class:`~lakelog.errors.IllegalMessage` for bytes that are not contiguous, and
    ``TypeError`` for anything but bytes.
    """
    if isinstance(body, bytes):
        return body
    try:
        found = memoryview(body)  # type: ignore[arg-type]  # the except clause handles other types
    except (TypeError, BufferError):
        raise wrong_type("body", body, "bytes: encode it first") from None
    try:
        return found.cast("B")
    except TypeError:
        raise illegal("the body is a view with gaps; give contiguous bytes") from None


Keys = str | Sequence[str] | None


def message_properties(tags: str | None, keys: Keys, properties: PropertiesLike | None) -> bytes:
    """The encoded properties of one message.

    Raises :class:`~lakelog.errors.IllegalMessage` for values that a record cannot hold, and
    ``TypeError`` for those of wrong types.
    """
    if properties:
        return _with_more(tags, keys, properties)
    if tags is None and keys is None:
        return b""
    return _encoded_properties(_named(tags, keys))


def _with_more(tags: str | None, keys: Keys, properties: PropertiesLike) -> bytes:
    if isinstance(properties, bytes | bytearray | memoryview):
        if tags is not None or keys is not None:
            raise illegal(
                "properties given as bytes are kept as they are; put tags and keys into them"
            )
        return _unsealed(bytes(properties))
    try:
        more = dict(properties)
    except (ValueError, TypeError):
        wanted = "a mapping of names to values, or bytes"
        raise wrong_type("properties", properties, wanted) from None
    named = _named(tags, keys)
    for name, value in () if named.keys().isdisjoint(more) else named.items():
        if more.get(name, value) != value:
            field = name.lower()
            raise illegal(
                f"{field} is {value!r}, and properties has {name} {shown(more[name])}; give one of "
                "them"
            )
    return _unsealed(_encoded_properties(named | more))


def _encoded_properties(named: dict[str, str]) -> bytes:
    try:
        return encode_properties(named)
    except ValueError as error:
        raise illegal(str(error)) from None


def _unsealed(properties: bytes) -> bytes:
    kept = without_seal(properties)
    if is_sealed(kept):
        raise illegal("the last property would be taken for the record checksum, __CRC32#")
    if kept.endswith(b"\x00") or bytes(SECTOR_BYTES) in kept:
        raise illegal(
            f"properties that end with a zero byte, or hold {SECTOR_BYTES} of them in a row, would "
            "be taken for a lost sector"
        )
    return kept


def _named(tags: str | None, keys: Keys) -> dict[str, str]:
    named = {}
    try:
        if tags is not None:
            named[TAGS] = check_tags(tags)
        if keys is not None:
            named[KEYS] = join_keys(keys)
    except ValueError as error:
        raise illegal(str(error)) from None
    return named


def ended(properties: bytes) -> bytes:
    """``properties`` with a trailing separator, so that another property can follow."""
    if properties and not properties.endswith(layout.PROPERTY_SEPARATOR):
        return properties + layout.PROPERTY_SEPARATOR
    return properties


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
_pack_crc: Final = Struct(">I").pack_into


@attrs.define(weakref_slot=False, eq=False, repr=False)
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
        if len(buffer) + layout.BLANK_MIN_BYTES > remaining:
            return AppendStatus.END_OF_FILE
        queue_offset = queue_offsets.next(self.queue) if self.queued else 0
        _pack_offsets(buffer, layout.AT_QUEUE_OFFSET, queue_offset, position)
        _pack_long(buffer, self.hosts.store_time_at, now_ms)
        if self.sealed:
            seal(buffer, 0, len(buffer))
        self.queue_offset = queue_offset
        self.physical_offset = position
        self.store_timestamp_ms = now_ms
        return AppendStatus.PUT_OK

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Advance the queue by one, unless the record belongs to no queue."""
        if self.queued:
            queue_offsets.advance(self.queue, 1)

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


class _Tentative(QueueOffsets):
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
        tentative = _Tentative(queue_offsets)
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

    def results(self, status: PutStatus) -> list[PutResult]:
        """One result per piece."""
        return [piece.result(status) for piece in self._pieces]


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

        Raises :class:`~lakelog.errors.PutRefused` for too many light queues.
        """
        found = queue_offsets.new_light_queues(set(self._topics))
        if found > self._max_light_queues:
            raise PutRefused(
                PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                f"there would be {found} light queues; {self._max_light_queues} are allowed "
                "(max_light_queues)",
            )
        numbers = [str(queue_offsets.next((topic, 0))) for topic in self._topics]
        properties = ended(self._properties) + encode_properties(
            {INNER_MULTI_QUEUE_OFFSET: MULTI_DISPATCH_SEPARATOR.join(numbers)}
        )
        if self.sealed:
            properties += PLACEHOLDER
        buffer = bytearray().join((self._front, _SHORT.pack(len(properties) & 0xFFFF), properties))
        try:
            self._limits.check(0, len(properties), len(buffer))
        except IllegalMessage as error:
            return _APPEND_STATUS[error.status]
        _SIZE.pack_into(buffer, layout.AT_SIZE, len(buffer))
        self.buffer = buffer
        return super().place(position, remaining, queue_offsets, now_ms)

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Take an offset in the record's own queue and in each light queue."""
        super().advance(queue_offsets)
        for topic in self._topics:
            queue_offsets.advance((topic, 0), 1)


class HostPair(NamedTuple):
    """Born host and store host, with the layout of the head that follows from their lengths.

    :ivar born: the encoded born host, 8 or 20 bytes
    :ivar store: the encoded store host, 8 or 20 bytes
    :ivar store_host: the store host as text
    :ivar sys_flag: the bits for IPv6 hosts
    :ivar head: layout of all fields before the body
    :ivar fixed_bytes: length of the head and of the properties' length field, in bytes
    :ivar store_time_at: position of the store time in a record, in bytes
    """

    born: bytes
    store: bytes
    store_host: str
    sys_flag: int
    head: Struct
    fixed_bytes: int
    store_time_at: int


@lru_cache(maxsize=4096)
def host_pair(born_host: str, store_host: str) -> HostPair:
    """The pair of two hosts given as ``address:port``.

    Raises :class:`~lakelog.errors.IllegalMessage` if either is not a valid host.
    """
    born, store = _encoded_host("born_host", born_host), _encoded_host("store_host", store_host)
    flags = layout.BORN_HOST_V6 if len(born) != layout.HOST_V4_BYTES else 0
    if len(store) != layout.HOST_V4_BYTES:
        flags |= layout.STORE_HOST_V6
    head = Struct(
        f"{layout.PREFIX.format}{len(born)}sq{len(store)}s{layout.SUFFIX.format.removeprefix('>')}"
    )
    return HostPair(
        born, store, store_host, flags, head, head.size + 2, layout.AT_BORN_HOST + len(born)
    )


def _encoded_host(name: str, host: str) -> bytes:
    try:
        return encode_host(host)
    except ValueError as error:
        raise illegal(f"{name}: {error}") from None


class TopicBlock(NamedTuple):
    """The encoded topic.

    :ivar magic: record magic that matches its length field
    :ivar data: length and topic
    """

    magic: int
    data: bytes


@lru_cache(maxsize=65536)
def topic_block(topic: str) -> TopicBlock:
    """The block for ``topic``; V2 if its length does not fit into a signed byte.

    RocketMQ counts characters to choose V2; this function counts bytes. Both agree for ASCII. If
    only the bytes exceed the limit, RocketMQ writes a V1 record that cannot be read.

    Raises :class:`~lakelog.errors.IllegalMessage` for an invalid topic.
    """
    data = encode_topic(topic)
    if len(data) > layout.MAX_TOPIC_V1_BYTES:
        return TopicBlock(layout.MAGIC_V2, len(data).to_bytes(2, "big") + data)
    return TopicBlock(layout.MAGIC_V1, len(data).to_bytes(1, "big") + data)


MAX_DELAY_MS: Final = 3 * 24 * 3_600_000
"""RocketMQ's ``timerMaxDelaySec``."""
_OF_A_DELAY: Final = {REAL_TOPIC, REAL_QUEUE, DELAY, TIMER_DELAY, TIMER_DELIVER, TIMER_OUT}
_WITHOUT_DELAY: Final = layout.TRANSACTION_MASK | layout.INNER_BATCH


def delayed(message: Message, queue_id: int, now_ms: int) -> Message:
    """The timer message of RocketMQ in which a message with a time of delivery waits.

    It has the topic and queue of ``message`` as properties. A time that has passed is now: the
    result is then ``message`` itself without it.

    :param queue_id: the queue of the message
    :param now_ms: the present time, in ms since 1970

    Raises ``ValueError`` and ``TypeError`` for a wrong time, and
    :class:`~lakelog.errors.IllegalMessage` as the encoder.
    """
    if message.delay_ms is not None and message.deliver_at_ms is not None:
        raise WrongValue("delay_ms and deliver_at_ms are both given; give one of them")
    field = "deliver_at_ms" if message.delay_ms is None else "delay_ms"
    given = whole(field, getattr(message, field))
    due_ms = given if message.delay_ms is None else now_ms + given
    if due_ms > now_ms + MAX_DELAY_MS:
        raise WrongValue(
            f"{field} is {shown(given)}; a message waits for {MAX_DELAY_MS} ms (3 days) at most, "
            "and deliver_at_ms is in ms since 1970: put a later one again then"
        )
    if message.sys_flag & _WITHOUT_DELAY:
        raise WrongValue(
            "a message of a transaction or with several inner ones has no delay_ms or "
            "deliver_at_ms; put it without"
        )
    plain = attrs.evolve(message, queue_id=queue_id, delay_ms=None, deliver_at_ms=None)
    if due_ms <= now_ms:
        return plain
    encode_topic(message.topic)
    properties = message_properties(message.tags, message.keys, message.properties)
    if not _OF_A_DELAY.isdisjoint(decode_properties(properties)):
        raise illegal(f"with a delay, the properties hold none of {', '.join(sorted(_OF_A_DELAY))}")
    if message.delay_ms is not None and not due_ms % 1000:
        due_ms += 1  # RocketMQ rounds to seconds; any other time is an exact one
    name = TIMER_DELIVER if message.delay_ms is None else TIMER_DELAY
    added = {name: given, TIMER_OUT: due_ms, REAL_TOPIC: message.topic, REAL_QUEUE: queue_id}
    texts = {each: str(value) for each, value in added.items()}
    properties = ended(properties) + encode_properties(texts)
    return attrs.evolve(
        plain, topic=TIMER_TOPIC, queue_id=0, tags=None, keys=None, properties=properties
    )


def system_ms() -> int:
    """The system's time, in ms since 1970."""
    return time.time_ns() // 1_000_000


_DISPATCHED: Final = INNER_MULTI_DISPATCH.encode()
"""This name in the property string marks a message for light queues."""
_GIVEN_BITS: Final = ~(layout.BORN_HOST_V6 | layout.STORE_HOST_V6)
"""Bits of a message's system flags that are stored; the others follow from its hosts."""


@attrs.frozen(eq=False, repr=False)
class Encoder:
    """Encodes outside the append lock; safe to use from several threads.

    :ivar limits: the largest body and record
    :ivar store_host: ``address:port`` for messages that name no host
    :ivar record_crc: whether records end with a record checksum
    :ivar max_light_queues: limit on the number of light queues; ``None`` disables them
    :ivar queues: chooses the queue of messages that name none
    :ivar now_ms: returns the time from which delays count, in ms since 1970
    :ivar own_hosts: both hosts, encoded, for messages that name none
    """

    limits: Limits
    store_host: str
    record_crc: bool
    max_light_queues: int | None
    queues: RoundRobin
    now_ms: Callable[[], int] = system_ms
    own_hosts: HostPair = attrs.field(init=False)

    @own_hosts.default
    def _default_hosts(self) -> HostPair:
        return host_pair(self.store_host, self.store_host)

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """The records of ``messages``.

        Raises :class:`~lakelog.errors.IllegalMessage`; for a batch, it names the index of
        the message.
        """
        if len(messages) == 1:
            return self.encode_one(messages[0])
        return EncodedRecordList([self._numbered(at, each) for at, each in enumerate(messages)])

    def encode_one(self, message: Message) -> EncodedRecord:
        """The record of one message.

        Raises :class:`~lakelog.errors.IllegalMessage` for values that no record can hold,
        ``TypeError`` for a field of a wrong type, and ``ValueError`` for a wrong time of delivery.
        """
        try:
            if message.delay_ms is not None or message.deliver_at_ms is not None:
                message = delayed(message, self.queue_of(message), self.now_ms())
            one, properties = self._encoded(message)
        except IllegalMessage:
            raise
        except (AttributeError, TypeError, ValueError, struct.error) as error:
            if not isinstance(message, Message):
                raise wrong_type("message", message, "a lakelog.Message") from None
            if isinstance(error, WrongType | WrongValue):
                raise
            what = f"{shown(message)} cannot be stored: {error}"
            raise misfit(message) or illegal(what) from error
        if self.max_light_queues is None or _DISPATCHED not in properties:
            return one
        if not one.queued or not feeds_light_queues(message.topic):
            return one  # a record that belongs to no queue takes no offset in light queues either
        topics = light_queues(decode_properties(properties).get(INNER_MULTI_DISPATCH, ""))
        if not topics:
            return one
        return EncodedLightQueueRecord(
            one, len(properties), topics, self.limits, self.max_light_queues
        )

    def _encoded(self, message: Message) -> tuple[EncodedRecord, bytes]:
        """The record of ``message``, and its property string.

        Raises :class:`~lakelog.errors.IllegalMessage`; ``struct.error``, ``TypeError`` or
        ``AttributeError`` for a field of a wrong type or range.
        """
        topic, body, queue_id = message.topic, message.body, message.queue_id
        is_fixed = type(body) is bytes
        if not is_fixed:
            body = as_body(body)
        body_bytes = len(body)
        properties = message_properties(message.tags, message.keys, message.properties)
        if self.record_crc:
            properties = ended(properties) + PLACEHOLDER
        hosts, block = self.hosts_of(message), topic_block(topic)
        size = hosts.fixed_bytes + body_bytes + len(block.data) + len(properties)
        self.limits.check(body_bytes, len(properties), size)
        flags = message.sys_flag & _GIVEN_BITS | hosts.sys_flag
        if type(queue_id) is not int or queue_id < 0:
            queue_id = self.queue_of(message)
        born = message.born_timestamp_ms
        head = hosts.head.pack(
            size, block.magic, body_crc(body) if is_fixed else 0, queue_id, message.flag, 0, 0,
            flags, time.time_ns() // 1_000_000 if born is None else born, hosts.born, 0,
            hosts.store, message.reconsume_times, message.prepared_transaction_offset, body_bytes,
        )  # fmt: skip  # in the order of the format
        length = _SHORT.pack(len(properties))
        buffer = bytearray().join((head, body, block.data, length, properties))
        if not is_fixed:  # others may write to this memory meanwhile: the checksum of the copy
            copied = memoryview(buffer)[hosts.head.size : hosts.head.size + body_bytes]
            _pack_crc(buffer, layout.AT_BODY_CRC, body_crc(copied))
        queue, queued = (topic, queue_id), not flags & layout.PREPARED
        one = EncodedRecord(buffer, queue, queued, message.wait_store_ok, hosts, self.record_crc)
        return one, properties

    def hosts_of(self, message: Message | MessageColumns) -> HostPair:
        """The hosts of ``message``, with the store's own host where it names none.

        Raises :class:`~lakelog.errors.IllegalMessage` for an invalid host.
        """
        born, store = message.born_host, message.store_host
        if born is store is None:
            return self.own_hosts
        return host_pair(born or self.store_host, store or self.store_host)

    def queue_of(self, message: Message) -> int:
        """The queue of ``message``, or the next queue of its topic if it names none.

        Raises :class:`~lakelog.errors.IllegalMessage` for an invalid queue id.
        """
        queue_id = message.queue_id
        if queue_id is None:
            return self.queues.choose(message.topic)
        try:
            return whole("queue_id", queue_id)
        except ValueError as error:
            raise illegal(str(error)) from None

    def _numbered(self, at: int, message: Message) -> EncodedRecord:
        where = f"message {at} of the batch"
        try:
            return self.encode_one(message)
        except (WrongType, WrongValue) as error:
            raise type(error)(f"{where}: {error}") from None
        except IllegalMessage as error:
            raise IllegalMessage(f"{where}: {error}", status=error.status) from None


class RoundRobin:
    """Chooses queues for messages that name none, by a counter per topic.

    Safe to use from several threads.
    """

    def __init__(self, queues_per_topic: int) -> None:
        self._queues = queues_per_topic
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(count)

    def choose(self, topic: str) -> int:
        """The next queue id for ``topic``, from 0."""
        return next(self._turns[topic]) % self._queues

    def choose_many(self, topic: str, number: int) -> list[int]:
        """The queue ids for the next ``number`` messages of ``topic``."""
        return [turn % self._queues for turn in islice(self._turns[topic], number)]
