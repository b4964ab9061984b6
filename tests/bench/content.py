"""The content of each message, the same for all peers: topic, one tag, a unique key, a body.

Also its record in a RocketMQ store, encoded here independently of lakelog, so that peers without
an encoder write the same bytes.
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import Final

TOPIC: Final = "bench"
TAGS: Final = "TagA"
QUEUES: Final = 4

_TOPIC_BYTES: Final = TOPIC.encode()
_MAGIC_V1: Final = 0xDAA320A7
_BORN_AND_STORE_HOST: Final = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
_BORN_MS: Final = 1_700_000_000_000
_HEAD: Final = struct.Struct(">iIIiiqqiq8sq8siqi")


def body(size_bytes: int) -> bytes:
    """Make bytes that do not compress."""
    return random.Random(1).randbytes(size_bytes)


def key(number: int) -> str:
    """Return the key of a message."""
    return f"k{number}"


def properties(number: int) -> bytes:
    """Encode tag and key as RocketMQ does."""
    return b"KEYS\x01k%d\x02TAGS\x01TagA\x02" % number


def record(number: int, physical_offset: int, body: bytes) -> bytes:
    """Encode the whole record of a message (V1, IPv4 hosts)."""
    encoded = properties(number)
    size = _HEAD.size + len(body) + 1 + len(_TOPIC_BYTES) + 2 + len(encoded)
    return b"".join(
        (
            _HEAD.pack(
                size,
                _MAGIC_V1,
                zlib.crc32(body) & 0x7FFFFFFF,
                number % QUEUES,
                0,
                number // QUEUES,
                physical_offset,
                0,
                _BORN_MS,
                _BORN_AND_STORE_HOST,
                _BORN_MS,
                _BORN_AND_STORE_HOST,
                0,
                0,
                len(body),
            ),
            body,
            bytes([len(_TOPIC_BYTES)]),
            _TOPIC_BYTES,
            struct.pack(">h", len(encoded)),
            encoded,
        )
    )


def run_of_records(count: int, body: bytes) -> bytes:
    """Encode consecutive records that start at physical offset 0."""
    run = bytearray()
    for number in range(count):
        run += record(number, len(run), body)
    return bytes(run)
