"""Real records for tests, encoded by the core's encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakelog.codec import RecordBatch, decode_run
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.message import Message
from lakelog.status import AppendStatus
from lakelog_format.codec.encoder import Encoder, RoundRobin
from lakelog_format.codec.limits import Limits

SEGMENT_BYTES: Final = 1 << 30
STORED_AT_MS: Final = 1_700_000_000_000


def messages(count: int, topic: str = "orders", queues: int = 2) -> list[Message]:
    """Different messages, alternating between queues, each with a tag and a key."""
    return [
        Message(topic, b"body %d" % at, tags=f"t{at % 3}", keys=f"k{at}", queue_id=at % queues)
        for at in range(count)
    ]


def encode_log(items: Sequence[Message], base_offset: int = 0) -> bytes:
    """The records of ``items`` back to back, as in a log from ``base_offset`` on."""
    encoder = Encoder(
        limits=Limits.of(4 << 20, SEGMENT_BYTES),
        store_host="127.0.0.1:10911",
        record_crc=False,
        max_light_queues=None,
        queues=RoundRobin(4),
    )
    offsets = QueueOffsets()
    log = bytearray()
    for item in items:
        batch = encoder.encode([item])
        place = base_offset + len(log)
        status = batch.place(place, SEGMENT_BYTES, offsets, STORED_AT_MS + len(log))
        assert status is AppendStatus.PUT_OK
        batch.advance(offsets)
        log += batch.buffer
    return bytes(log)


def record_batch(items: Sequence[Message], base_offset: int = 0) -> RecordBatch:
    """The same records as columns, as dispatchers receive them."""
    batch = decode_run(encode_log(items, base_offset), base_offset)
    assert len(batch) == len(items)
    return batch
