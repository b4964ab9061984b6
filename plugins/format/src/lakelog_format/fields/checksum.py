"""Checksums: CRC-32, the other polynomials of crcmod, and fingerprints of records.

Records hold zlib's CRC-32 without its highest bit (Java's ``int`` kept positive).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

Crc: TypeAlias = "Callable[[Any], int]"
"""A checksum function for contiguous bytes."""

CRC31_MASK = 0x7FFFFFFF


def _fast_crc32() -> Callable[..., int]:
    try:
        from isal.isal_zlib import crc32 as fast
    except ImportError:
        from zlib import crc32 as fast
    return fast


crc32: Callable[..., int] = _fast_crc32()
"""CRC-32 (``zlib.crc32``), computed by isa-l if it is installed."""


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
