"""Encodes one message as one record: the scalar path of a single put."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Final

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.limits import as_body
from lakelog.codec.messageproperties import ended, message_properties
from lakelog.codec.recordcrc import PLACEHOLDER, seal
from lakelog.codec.topicblock import topic_block
from lakelog.format.checksum import CRC31_MASK, crc32
from lakelog.format.layout import AT_QUEUE_OFFSET, BLANK_MIN_BYTES
from lakelog.format.queue_offsets import Queue, QueueOffsets
from lakelog.format.sysflag import BORN_HOST_V6, PREPARED, STORE_HOST_V6
from lakelog.results import PutResult
from lakelog.status import AppendStatus, PutStatus

if TYPE_CHECKING:
    from lakelog.codec.encoder import Encoder
    from lakelog.codec.hostpair import HostPair
    from lakelog.message import Message

_pack_offsets: Final = struct.Struct(">qq").pack_into
_pack_long: Final = struct.Struct(">q").pack_into
_pack_short: Final = struct.Struct(">H").pack
GIVEN_BITS: Final = ~(BORN_HOST_V6 | STORE_HOST_V6)
"""Bits of a message's system flags that are stored; the others follow from its hosts."""
# Access to enum members costs a tenth of a microsecond each in Python 3.11.
_PUT_OK: Final = AppendStatus.PUT_OK
_END_OF_FILE: Final = AppendStatus.END_OF_FILE


class EncodedRecord(EncodedBatch):
    """One record."""

    __slots__ = (
        "_hosts",
        "_sealed",
        "physical_offset",
        "queue",
        "queue_offset",
        "queued",
        "store_timestamp_ms",
    )

    def __init__(
        self,
        buffer: bytearray,
        queue: Queue,
        queued: bool,
        wait: bool,
        hosts: HostPair,
        sealed: bool,
    ) -> None:
        self.buffer = buffer
        self.count = 1
        self.wait = wait
        self.queue = queue
        self.queued = queued
        self._hosts = hosts
        self._sealed = sealed

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Write both offsets and the store time into the record, then its checksum."""
        buffer = self.buffer
        if len(buffer) + BLANK_MIN_BYTES > remaining:
            return _END_OF_FILE
        queue_offset = queue_offsets.next(self.queue) if self.queued else 0
        _pack_offsets(buffer, AT_QUEUE_OFFSET, queue_offset, position)
        _pack_long(buffer, self._hosts.store_time_at, now_ms)
        if self._sealed:
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
        return self._hosts.store_host

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
            self._hosts.store_host,
        )

    def results(self, status: PutStatus) -> list[PutResult]:
        """The one result, as a sequence."""
        return [self.result(status)]


def encode_record(message: Message, encoder: Encoder) -> tuple[EncodedRecord, bytes]:
    """The record of ``message``, and its property string."""
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
    if size > encoder.limits.safe_bytes:
        encoder.limits.check(len(body), len(properties), size)
    flags = message.sys_flag & GIVEN_BITS | hosts.sys_flag
    queue_id = message.queue_id
    if type(queue_id) is not int or queue_id < 0:
        queue_id = encoder.queue_of(message)
    born = message.born_timestamp_ms
    head = hosts.pack(
        size, block.magic, crc32(body) & CRC31_MASK, queue_id, message.flag, 0, 0, flags,
        time.time_ns() // 1_000_000 if born is None else born, hosts.born, 0, hosts.store,
        message.reconsume_times, message.prepared_transaction_offset, len(body),
    )  # fmt: skip  # in the order of the format
    buffer = bytearray().join((head, body, block.data, _pack_short(len(properties)), properties))
    queue, queued = (message.topic, queue_id), not flags & PREPARED
    one = EncodedRecord(buffer, queue, queued, message.wait_store_ok, hosts, encoder.record_crc)
    return one, properties
