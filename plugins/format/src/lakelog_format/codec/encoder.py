"""Encodes messages to records, one by one; an accelerator encodes many in one pass."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Final

import attrs

from lakelog_format.arguments import whole
from lakelog_format.codec.encoded import (
    EncodedBatch,
    EncodedLightQueueRecord,
    EncodedRecord,
    EncodedRecordList,
)
from lakelog_format.codec.limits import Limits, as_body, illegal, misfit
from lakelog_format.codec.message_properties import ended, message_properties
from lakelog_format.codec.record_crc import PLACEHOLDER
from lakelog_format.codec.record_parts import HostPair, host_pair, topic_block
from lakelog_format.errors import IllegalMessage
from lakelog_format.fields.checksum import CRC31_MASK, crc32
from lakelog_format.fields.properties import (
    INNER_MULTI_DISPATCH,
    decode_properties,
    feeds_light_queues,
    light_queues,
)
from lakelog_format.fields.sysflag import BORN_HOST_V6, PREPARED, STORE_HOST_V6
from lakelog_format.message import Message, MessageColumns

DISPATCHED: Final = INNER_MULTI_DISPATCH.encode()
"""This name in the property string marks a message for light queues."""


GIVEN_BITS: Final = ~(BORN_HOST_V6 | STORE_HOST_V6)
"""Bits of a message's system flags that are stored; the others follow from its hosts."""
_pack_short: Final = struct.Struct(">H").pack


def encode_record(message: Message, encoder: Encoder) -> tuple[EncodedRecord, bytes]:
    """The record of ``message``, and its property string.

    Raises :class:`~lakelog_format.errors.IllegalMessage`; ``struct.error``, ``TypeError`` or
    ``AttributeError`` for a field of a wrong type or range, which :meth:`Encoder.encode_one`
    translates.
    """
    body = message.body
    if type(body) is not bytes:
        body = as_body(body)
    properties = message_properties(message.tags, message.keys, message.properties)
    if encoder.record_crc:
        properties = ended(properties) + PLACEHOLDER
    hosts = encoder.own_hosts
    if message.born_host is not None or message.store_host is not None:
        hosts = encoder.hosts_of(message)
    block = topic_block(message.topic)
    size = hosts.fixed_bytes + len(body) + len(block.data) + len(properties)
    encoder.limits.check(len(body), len(properties), size)
    flags = message.sys_flag & GIVEN_BITS | hosts.sys_flag
    queue_id = message.queue_id
    if type(queue_id) is not int or queue_id < 0:
        queue_id = encoder.queue_of(message)
    born = message.born_timestamp_ms
    head = hosts.head.pack(
        size, block.magic, crc32(body) & CRC31_MASK, queue_id, message.flag, 0, 0, flags,
        time.time_ns() // 1_000_000 if born is None else born, hosts.born, 0, hosts.store,
        message.reconsume_times, message.prepared_transaction_offset, len(body),
    )  # fmt: skip  # in the order of the format
    buffer = bytearray().join((head, body, block.data, _pack_short(len(properties)), properties))
    queue, queued = (message.topic, queue_id), not flags & PREPARED
    one = EncodedRecord(buffer, queue, queued, message.wait_store_ok, hosts, encoder.record_crc)
    return one, properties


@attrs.frozen
class Encoder:
    """Encodes outside the append lock; safe to use from several threads.

    :ivar limits: the largest body and record
    :ivar store_host: ``address:port`` for messages that name no host
    :ivar record_crc: whether records end with a record checksum
    :ivar max_light_queues: limit on the number of light queues; ``None`` disables them
    :ivar queues: chooses the queue of messages that name none
    :ivar own_hosts: both hosts, encoded, for messages that name none
    """

    limits: Limits
    store_host: str
    record_crc: bool
    max_light_queues: int | None
    queues: RoundRobin
    own_hosts: HostPair = attrs.field(init=False)

    @own_hosts.default
    def _default_hosts(self) -> HostPair:
        return host_pair(self.store_host, self.store_host)

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """The records of ``messages``.

        Raises :class:`~lakelog_format.errors.IllegalMessage`; for a batch, it names the index of
        the message.
        """
        if len(messages) == 1:
            return self.encode_one(messages[0])
        return EncodedRecordList([self._numbered(at, each) for at, each in enumerate(messages)])

    def encode_one(self, message: Message) -> EncodedRecord:
        """The record of one message; raises :class:`~lakelog_format.errors.IllegalMessage`."""
        try:
            one, properties = encode_record(message, self)
        except struct.error as error:
            raise illegal(misfit(message) or f"a number does not fit its field: {error}") from None
        except (AttributeError, TypeError) as error:
            what = misfit(message) or f"{message!r:.200} cannot be stored: {error}"
            raise illegal(what) from error
        if self.max_light_queues is not None and DISPATCHED in properties:
            return self._light(one, properties, message)
        return one

    def hosts_of(self, message: Message | MessageColumns) -> HostPair:
        """The hosts of ``message``, with the store's own host where it names none.

        Raises :class:`~lakelog_format.errors.IllegalMessage` for an invalid host.
        """
        born, store = message.born_host, message.store_host
        if born is store is None:
            return self.own_hosts
        return host_pair(born or self.store_host, store or self.store_host)

    def queue_of(self, message: Message) -> int:
        """The queue of ``message``, or the next queue of its topic if it names none.

        Raises :class:`~lakelog_format.errors.IllegalMessage` for an invalid queue id.
        """
        queue_id = message.queue_id
        if queue_id is None:
            return self.queues.choose(message.topic)
        try:
            return whole("queue_id", queue_id)
        except (TypeError, ValueError) as error:
            raise illegal(str(error)) from None

    def _light(self, one: EncodedRecord, properties: bytes, message: Message) -> EncodedRecord:
        """Add offsets in light queues; a record that belongs to no queue gets none."""
        if not one.queued or not feeds_light_queues(message.topic):
            return one
        topics = light_queues(decode_properties(properties).get(INNER_MULTI_DISPATCH, ""))
        if not topics or self.max_light_queues is None:
            return one
        return EncodedLightQueueRecord(
            one, len(properties), topics, self.limits, self.max_light_queues
        )

    def _numbered(self, at: int, message: Message) -> EncodedRecord:
        try:
            return self.encode_one(message)
        except IllegalMessage as error:
            what = f"message {at} of the batch: {error}"
            raise IllegalMessage(what, status=error.status) from None


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
