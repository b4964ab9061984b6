"""Java's ``String.hashCode``, one by one and in columns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LONGEST_IN_COLUMNS: Final = 64
"""Values longer than this, in bytes, are hashed one by one."""
_FACTOR: Final = np.uint32(31)
_NOT_ASCII: Final = 0x80


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
    """The hash of what Java reads from UTF-8 bytes; broken ones count as U+FFFD."""
    return java_hash(raw.decode(errors="replace"))


def hashes(
    octets: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[Any]
) -> NDArray[np.int64]:
    """The hash of each of many UTF-8 strings in ``octets``, as ``int64``.

    All ASCII strings advance together, one character at a time.
    """
    lengths = ends - starts
    found = np.zeros(len(starts), np.uint32)
    other = lengths > LONGEST_IN_COLUMNS
    short = lengths[~other]
    for at in range(int(short.max(initial=0))):
        active = np.flatnonzero((lengths > at) & ~other)
        chars = octets[starts[active] + at]
        other[active[chars >= _NOT_ASCII]] = True
        found[active] = found[active] * _FACTOR + chars
    codes = found.view(np.int32).astype(np.int64)
    for at in np.flatnonzero(other).tolist():
        codes[at] = hash_of_utf8(octets[starts[at] : ends[at]].tobytes())
    return codes
