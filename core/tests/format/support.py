"""Encoders, logs that they write, and a second, slow implementation of all checks of a record."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import crcmod.predefined

from lakelog.format.encoder import EncodedBatch, Encoder, Limits, RoundRobin
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.message import Message
from lakelog.results import AppendStatus

SEGMENT_BYTES = 1 << 30
STORED_MS = 1_700_000_000_123
HOST = "127.0.0.1:10911"


def an_encoder(
    *, record_crc: bool = False, lights: int | None = None, limits: Limits | None = None
) -> Encoder:
    limits = limits or Limits.of(4 << 20, SEGMENT_BYTES)
    return Encoder(limits, HOST, record_crc, lights, RoundRobin(4))


def placed(batch: EncodedBatch, offsets: QueueOffsets | None = None, position: int = 0) -> bytes:
    """The bytes of a batch that was placed and counted."""
    offsets = QueueOffsets() if offsets is None else offsets
    assert batch.place(position, SEGMENT_BYTES, offsets, STORED_MS) is AppendStatus.PUT_OK
    batch.advance(offsets)
    return bytes(batch.buffer)


def record_of(message: Message, *, record_crc: bool = False, position: int = 0) -> bytes:
    return placed(an_encoder(record_crc=record_crc).encode_one(message), position=position)


def log_of(messages: Sequence[Message], *, record_crc: bool = False, base: int = 0) -> bytes:
    """The records of messages that were put one by one."""
    encoder, offsets, log = an_encoder(record_crc=record_crc), QueueOffsets(), bytearray()
    for message in messages:
        log += placed(encoder.encode_one(message), offsets, base + len(log))
    return bytes(log)


@cache
def _crcmod_crc32() -> Any:
    return crcmod.predefined.mkPredefinedCrcFun("crc-32")


def crc31(data: bytes) -> int:
    """The checksum of a record, by two libraries that lakelog's fast path does not use."""
    found = zlib.crc32(data)
    if len(data) < 4096:
        assert found == _crcmod_crc32()(data)
    return found & 0x7FFFFFFF


def whole_record(data: bytes, offset: int, *, checksums: bool = True) -> int | None:
    """The length of the record at the start of ``data``; ``None`` if a check fails.

    Written from the description of the format, byte by byte.
    """
    if len(data) < 91:
        return None
    size = int.from_bytes(data[:4], "big", signed=True)
    magic = data[4:8].hex()
    if magic not in ("daa320a7", "daa320ab") or not 91 <= size <= len(data):
        return None
    data = data[:size]
    flags = int.from_bytes(data[36:40], "big")
    at = 48 + (20 if flags & 0x10 else 8) + 8 + (20 if flags & 0x20 else 8) + 4 + 8
    parts = []
    for width, signed in ((4, True), (1 if magic == "daa320a7" else 2, False), (2, True)):
        length = int.from_bytes(data[at : at + width], "big", signed=signed)
        if at + width > size or length < 0 or at + width + length > size:
            return None
        parts.append(data[at + width : at + width + length])
        at += width + length
    if at != size or int.from_bytes(data[28:36], "big", signed=True) != offset:
        return None
    body, topic, properties = parts
    is_sound = _checksums_hold(data, body, properties) and not (topic + properties).endswith(b"\0")
    sound = _is_text(topic) and (not checksums or is_sound)
    return size if sound else None


def _is_text(topic: bytes) -> bool:
    return "\ufffd" not in topic.replace("\ufffd".encode(), b"").decode(errors="replace")


def _checksums_hold(record: bytes, body: bytes, properties: bytes) -> bool:
    if int.from_bytes(record[8:12], "big") != crc31(body):
        return False
    if len(properties) < 20 or not properties[-20:].startswith(b"__CRC32#\x01"):
        return True
    digits = f"{crc31(record[:-20]):010d}"[::-1].encode()
    return record[-20:] == b"__CRC32#\x01" + digits + b"\x02"


def whole_prefix(data: bytes, base: int, *, checksums: bool = True) -> list[int]:
    """The starts of the whole records at the front of ``data``."""
    starts, at = [], 0
    while (size := whole_record(data[at:], base + at, checksums=checksums)) is not None:
        starts.append(at)
        at += size
    return starts
