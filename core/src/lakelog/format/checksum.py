"""Checksums: CRC-32, the other polynomials of crcmod, and fingerprints of records.

Records hold zlib's CRC-32 without its highest bit (Java's ``int`` kept positive). The record
checksum is the property ``__CRC32#`` at the end of a record, covering all bytes before it:
``__CRC32#`` 0x01, ten decimal digits with the least significant first, 0x02: 20 bytes. Source:
``MessageDecoder.createCrc32`` of RocketMQ 5.2.0 and later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs
from isal import isal_zlib

from lakelog.format import layout
from lakelog.message import Body

Crc: TypeAlias = "Callable[[Any], int]"
"""A checksum function for contiguous bytes."""

CRC31_MASK = 0x7FFFFFFF


crc32: Callable[..., int] = isal_zlib.crc32
"""CRC-32 (as ``zlib.crc32``), computed by isa-l."""


def body_crc(body: Any) -> int:
    """The checksum of a body as stored in its record: 31 bits, 0 for an empty body."""
    return crc32(body) & CRC31_MASK


def named_crc(name: str) -> Crc:
    """The checksum that crcmod registers as ``name``, such as ``crc-32c`` or ``crc-64-we``.

    Raises ``ValueError`` if crcmod has no such name.
    """
    if name == "crc-32":
        return crc32
    import crcmod.predefined

    try:
        function: Crc = crcmod.predefined.mkPredefinedCrcFun(name)
    except (KeyError, ValueError):
        raise ValueError(f"crcmod knows no checksum {name!r}") from None
    return function


def is_whole(_instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    """Validate a field that is a whole number, 0 or more; raises ``ValueError``."""
    if type(value) is not int or value < 0:  # JSON's true is an int to Python
        raise ValueError(f"{attribute.name} must be a whole number, 0 or more, not {value!r}")


@attrs.frozen
class Fingerprint:
    """The checksum of one record, by which a log is recognised.

    :ivar offset: its physical offset, in bytes
    :ivar size: its length in bytes
    :ivar crc: CRC-32 of all its bytes
    """

    offset: int = attrs.field(validator=is_whole)
    size: int = attrs.field(validator=is_whole)
    crc: int = attrs.field(validator=is_whole)


_START: Final = layout.RECORD_CRC_NAME + layout.NAME_VALUE_SEPARATOR
PLACEHOLDER: Final = _START + b"0" * 10 + layout.PROPERTY_SEPARATOR
"""Placeholder until the checksum is known."""


def seal(buffer: bytearray, start: int, end: int) -> None:
    """Write the checksum of the record ``buffer[start:end]`` over its last 20 bytes."""
    covered = end - layout.RECORD_CRC_BYTES
    buffer[covered:end] = record_crc_property(memoryview(buffer)[start:covered])


def record_crc_property(covered: Body) -> bytes:
    """The checksum property for a record whose preceding bytes are ``covered``."""
    digits = f"{crc32(covered) & CRC31_MASK:010d}"[::-1]
    return _START + digits.encode() + layout.PROPERTY_SEPARATOR


def is_sealed(properties: Body) -> bool:
    """Whether a property string ends with a record checksum.

    Earlier bytes are not examined, so that damage there cannot hide the checksum.
    """
    tail = bytes(properties[-layout.RECORD_CRC_BYTES :])
    return len(tail) == layout.RECORD_CRC_BYTES and tail.startswith(_START)


def seal_holds(record: Body) -> bool:
    """Whether the checksum at the end of a sealed record matches its other bytes."""
    covered = record[: -layout.RECORD_CRC_BYTES]
    return bytes(record[-layout.RECORD_CRC_BYTES :]) == record_crc_property(covered)


def without_seal(properties: bytes) -> bytes:
    """A property string with record checksums removed; only the store may write them."""
    if layout.RECORD_CRC_NAME not in properties:
        return properties
    pieces = properties.split(layout.PROPERTY_SEPARATOR)
    return layout.PROPERTY_SEPARATOR.join(piece for piece in pieces if not piece.startswith(_START))
