"""The record checksum: property ``__CRC32#`` at the end of a record, covering all bytes before it.

``__CRC32#`` 0x01, ten decimal digits with the least significant first, 0x02: 20 bytes. Source:
``MessageDecoder.createCrc32`` of RocketMQ 5.2.0 and later.
"""

from __future__ import annotations

from typing import Final

from lakelog_format.fields.checksum import CRC31_MASK, crc32
from lakelog_format.fields.layout import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    RECORD_CRC_BYTES,
    RECORD_CRC_NAME,
)
from lakelog_format.message import Body

START: Final = RECORD_CRC_NAME + NAME_VALUE_SEPARATOR
DIGITS: Final = 10

PLACEHOLDER: Final = START + b"0" * DIGITS + PROPERTY_SEPARATOR
"""Placeholder until the checksum is known."""


def seal(buffer: bytearray, start: int, end: int) -> None:
    """Write the checksum of the record ``buffer[start:end]`` over its last 20 bytes."""
    covered = end - RECORD_CRC_BYTES
    buffer[covered:end] = record_crc_property(memoryview(buffer)[start:covered])


def record_crc_property(covered: Body) -> bytes:
    """The checksum property for a record whose preceding bytes are ``covered``."""
    digits = f"{crc32(covered) & CRC31_MASK:010d}"[::-1]
    return START + digits.encode() + PROPERTY_SEPARATOR


def is_sealed(properties: Body) -> bool:
    """Whether a property string ends with a record checksum.

    Earlier bytes are not examined, so that damage there cannot hide the checksum.
    """
    tail = bytes(properties[-RECORD_CRC_BYTES:])
    return len(tail) == RECORD_CRC_BYTES and tail.startswith(START)


def seal_holds(record: Body) -> bool:
    """Whether the checksum at the end of a sealed record matches its other bytes."""
    covered = record[:-RECORD_CRC_BYTES]
    return bytes(record[-RECORD_CRC_BYTES:]) == record_crc_property(covered)


def without_seal(properties: bytes) -> bytes:
    """A property string with record checksums removed; only the store may write them."""
    if RECORD_CRC_NAME not in properties:
        return properties
    pieces = properties.split(PROPERTY_SEPARATOR)
    return PROPERTY_SEPARATOR.join(piece for piece in pieces if not piece.startswith(START))
