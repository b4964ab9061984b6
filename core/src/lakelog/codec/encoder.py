"""Encodes messages to records, one by one; an accelerator encodes many in one pass."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import attrs

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.hostpair import HostPair, host_pair
from lakelog.codec.light import EncodedLightQueueRecord
from lakelog.codec.limits import Limits, illegal, misfit
from lakelog.codec.one import EncodedRecord, encode_record
from lakelog.codec.pieces import EncodedRecordList
from lakelog.codec.queuechoice import RoundRobin
from lakelog.errors import IllegalMessage
from lakelog.format.properties import (
    INNER_MULTI_DISPATCH,
    decode_properties,
    feeds_light_queues,
    light_queues,
)
from lakelog.message import Message, MessageColumns
from lakelog.runtime.arguments import whole

DISPATCHED: Final = INNER_MULTI_DISPATCH.encode()
"""This name in the property string marks a message for light queues."""


@attrs.frozen
class Encoder:
    """Encodes outside the append lock; safe to use from several threads.

    :ivar store_host: host for messages that name none
    :ivar record_crc: whether records end with a record checksum
    :ivar own_hosts: both hosts for messages that name none
    :ivar max_light_queues: limit on the number of light queues; ``None`` disables them
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

        Raises :class:`~lakelog.errors.IllegalMessage`; for a batch, it names the message's index.
        """
        if len(messages) == 1:
            return self.encode_one(messages[0])
        return EncodedRecordList([self._numbered(at, each) for at, each in enumerate(messages)])

    def encode_one(self, message: Message) -> EncodedRecord:
        """The record of one message."""
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
        """The hosts of ``message``, with the store's own host where it names none."""
        born, store = message.born_host, message.store_host
        if born is store is None:
            return self.own_hosts
        return host_pair(born or self.store_host, store or self.store_host)

    def queue_of(self, message: Message) -> int:
        """The queue of ``message``, or the next queue of its topic if it names none."""
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
