"""Compares long byte strings, and reports the first difference.

A plain ``assert`` with pytest's full explanation (``-v``, or ``CI`` set) takes minutes for a
segment.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Bytes: TypeAlias = "bytes | memoryview"
_SHOWN_BYTES: Final = 16


def assert_same(found: Bytes, expected: Bytes) -> None:
    """Raise ``AssertionError`` with the first difference if ``found`` is not ``expected``."""
    if found == expected:
        return
    at = first_difference(found, expected)
    here, due = (bytes(each[at : at + _SHOWN_BYTES]) for each in (found, expected))
    lengths = f"{len(found)} bytes, {len(expected)} expected"
    raise AssertionError(f"{lengths}; at {at} is {here!r}, expected {due!r}")


def first_difference(one: Bytes, other: Bytes) -> int:
    """The position of the first difference, or the length of the shorter one."""
    pairs = zip(one, other, strict=False)
    differing = (at for at, (mine, yours) in enumerate(pairs) if mine != yours)
    return next(differing, min(len(one), len(other)))
