"""Java's ``String.hashCode``: sum of unit * 31^(units behind it), 32 bits."""

from __future__ import annotations

import sys
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000


def hash_text(text: str) -> int:
    """The hash of one string, as an unsigned 32-bit integer.

    >>> hash_text("TagA")
    2598919
    """
    units = text.encode() if text.isascii() else memoryview(_utf16(text)).cast("H")
    value = 0
    for unit in units:
        value = value * 31 + unit & _MASK
    return value


def hash_key(topic: str, key: str) -> int:
    """The stored hash of a key: the absolute value; 0 for -2**31, which has none."""
    unsigned = hash_text(f"{topic}#{key}")
    return unsigned if unsigned < _SIGN else -unsigned & _MASK & ~_SIGN


def _utf16(text: str) -> bytes:
    """UTF-16 in machine byte order, without a byte order mark."""
    return text.encode(f"utf-16-{sys.byteorder[0]}e", "surrogatepass")
