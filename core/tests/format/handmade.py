"""Records that RocketMQ could have written, field by field."""

from __future__ import annotations

import zlib

from lakelog.format.layout import HEAD_V4, MAGIC_V1, RECORD_MIN_BYTES
from lakelog.format.record_batch import RecordBatch, decode_run

STORED_AT_MS = 1_700_000_000_000
"""Store time of the record at offset 0."""


def record(
    topic: str,
    properties: bytes = b"",
    body: bytes = b"",
    queue_offset: int = 0,
    offset: int = 0,
    sys_flag: int = 0,
    queue_id: int = 0,
) -> bytes:
    """One record in the layout of RocketMQ."""
    name = topic.encode()
    size = RECORD_MIN_BYTES + len(name) + len(properties) + len(body)
    head = HEAD_V4.pack(
        *(size, MAGIC_V1, zlib.crc32(body) & 0x7FFFFFFF, queue_id, 0, queue_offset, offset),
        *(sys_flag, 0, b"", STORED_AT_MS + offset, b"", 0, 0, len(body)),
    )
    ends = len(properties).to_bytes(2, "big") + properties
    return head + body + len(name).to_bytes(1, "big") + name + ends


def run(*records: bytes, start: int = 0) -> RecordBatch:
    """Records back to back, with the checks of a scan."""
    batch = decode_run(b"".join(records), start)
    assert len(batch) == len(records)
    return batch
