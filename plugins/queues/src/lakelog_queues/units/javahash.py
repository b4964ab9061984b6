"""Java's ``String.hashCode``."""

from __future__ import annotations

from functools import lru_cache


def java_hash(text: str) -> int:
    """The signed 32-bit hash over the UTF-16 units of ``text``.

    >>> java_hash("TagA"), java_hash("")
    (2598919, 0)
    """
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@lru_cache(maxsize=4096)
def hash_of_utf8(raw: bytes) -> int:
    """The hash of the string that Java decodes from ``raw``; invalid UTF-8 counts as U+FFFD."""
    return java_hash(raw.decode(errors="replace"))
