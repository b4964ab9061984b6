"""Java's ``String.hashCode`` of many UTF-8 strings: sum of unit * 31^(units behind it), 32 bits."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog_hash_index.rows import Longs, Octets, groups, rows

Hashes = NDArray[np.uint32]
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_SHORT: Final = 128
"""Longer text is faster in arrays."""


def hash_text(text: str) -> int:
    """The hash of one string, as an unsigned 32-bit integer.

    >>> hash_text("TagA")
    2598919
    """
    if len(text) <= _SHORT and text.isascii():
        value = 0
        for unit in text.encode():
            value = value * 31 + unit & _MASK
        return value
    units = np.frombuffer(text.encode("utf-16-be", "surrogatepass"), ">u2")
    return int(units.astype(np.uint32) @ _weights(len(units)))


def hash_all(octets: Octets, starts: Longs, lengths: Longs) -> tuple[Hashes, Longs]:
    """Hash, and number of UTF-16 units, of each string; broken UTF-8 is replaced as Java does."""
    hashes, units = np.zeros(len(starts), np.uint32), lengths.copy()
    for length, members in groups(lengths):
        block = rows(octets, starts[members], length)
        hashes[members] = block.astype(np.uint32) @ _weights(length)
        if block.size and block.max() >= 0x80:
            wide = np.flatnonzero((block >= 0x80).any(axis=1))
            for member, raw in zip(members[wide].tolist(), block[wide], strict=True):
                text = raw.tobytes().decode(errors="replace")
                hashes[member] = hash_text(text)
                units[member] = len(text.encode("utf-16-be", "surrogatepass")) // 2
    return hashes, units


def after(prefixes: Hashes, hashes: Hashes, units: Longs) -> Hashes:
    """Hashes of strings with another string in front, from the hashes of both."""
    if not len(units):
        return hashes
    raised = _powers(int(units.max()).bit_length())[units]
    return np.asarray(prefixes * raised + hashes)


def key_hash(hashes: Hashes) -> NDArray[np.int32]:
    """What the index keeps: the absolute value; the one number that has none becomes 0."""
    signed = np.abs(hashes.view(np.int32))
    signed[signed < 0] = 0
    return signed


def hash_key(topic: str, key: str) -> int:
    """What the index keeps of one key."""
    unsigned = hash_text(f"{topic}#{key}")
    return unsigned if unsigned < _SIGN else -unsigned & _MASK & ~_SIGN


@lru_cache(maxsize=32)
def _powers(bits: int) -> Hashes:
    """31 to each power below ``2**bits``."""
    powers = np.full(1 << bits, 31, np.uint32)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint32)


def _weights(length: int) -> Hashes:
    """31 to the powers from ``length - 1`` down to 0."""
    return _powers(length.bit_length())[:length][::-1]
