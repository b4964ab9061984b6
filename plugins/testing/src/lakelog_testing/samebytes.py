"""Compares long runs of bytes and says where they differ.

An ``assert`` that pytest explains in full (with ``-v``, or ``CI`` set) takes minutes for a segment.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Bytes: TypeAlias = "bytes | memoryview"
_SHOWN_BYTES: Final = 16


def assert_same(found: Bytes, expected: Bytes) -> None:
    """Raise ``AssertionError`` where ``found`` is not ``expected``, with the first difference."""
    if found == expected:
        return
    at = first_difference(found, expected)
    here, due = (bytes(each[at : at + _SHOWN_BYTES]) for each in (found, expected))
    lengths = f"{len(found)} bytes, {len(expected)} expected"
    raise AssertionError(f"{lengths}; at {at} is {here!r}, expected {due!r}")


def first_difference(one: Bytes, other: Bytes) -> int:
    """Where the first byte differs, or where the shorter one ends."""
    pairs = zip(one, other, strict=False)
    differing = (at for at, (mine, yours) in enumerate(pairs) if mine != yours)
    return next(differing, min(len(one), len(other)))
