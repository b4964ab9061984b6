"""Checksums: CRC-32 on a fast path, any other polynomial through crcmod's catalogue.

Records hold CRC-32 as zlib computes it, without its highest bit (Java's ``int`` kept positive).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Crc: TypeAlias = "Callable[[Any], int]"
"""A checksum of any contiguous bytes."""

CRC31_MASK = 0x7FFFFFFF


def _fast_crc32() -> Callable[..., int]:
    try:
        from isal.isal_zlib import crc32 as fast
    except ImportError:
        from zlib import crc32 as fast
    return fast


crc32: Callable[..., int] = _fast_crc32()
"""CRC-32 (``zlib.crc32``), by isa-l where it is installed."""


def body_crc(body: Any) -> int:
    """The checksum of a body as its record holds it: 31 bits, 0 for an empty body."""
    return crc32(body) & CRC31_MASK


def named_crc(name: str) -> Crc:
    """The checksum that crcmod knows as ``name``, such as ``crc-32c`` or ``crc-64-we``.

    Raises ``ValueError`` for a name that crcmod does not know.
    """
    if name == "crc-32":
        return crc32
    import crcmod.predefined

    try:
        function: Crc = crcmod.predefined.mkPredefinedCrcFun(name)
    except (KeyError, ValueError):
        raise ValueError(f"crcmod knows no checksum {name!r}") from None
    return function
