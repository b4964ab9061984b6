"""Where records start, as far as lengths lead: one by one, and in leaps where all are alike."""

from __future__ import annotations

import struct
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.layout import RECORD_MIN_BYTES

_SIZE: Final = struct.Struct(">i")
_LENGTH: Final = np.dtype(">i4")
_STEPS: Final = 32
"""After so many, and where the last two have one length, a leap is tried."""
_LEAP: Final = 1024
"""A leap passes at most so many records; one that falls short has looked at the rest in vain."""

Ints = NDArray[np.int64]


def follow(view: memoryview, max_records: int) -> Ints:
    """The starts of the records at the front of ``view``; all of each stands in it."""
    parts: list[Ints] = []
    at, left = 0, max_records
    while left > 0:
        steps = min(left, _STEPS)
        starts = _step(view, at, steps)
        parts.append(np.array(starts[:-1], np.int64))
        at, left = starts[-1], left - steps
        if len(starts) <= steps:
            break
        if left and steps == _STEPS and starts[-2] - starts[-3] == at - starts[-2]:
            parts.append(_leap(view, at, at - starts[-2], left))
            at, left = at + (at - starts[-2]) * len(parts[-1]), left - len(parts[-1])
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])


def _step(view: memoryview, at: int, most: int) -> list[int]:
    """Where records start from ``at`` on, and where the last of them ends."""
    starts, unpack = [at], _SIZE.unpack_from
    found = starts.append
    try:
        for _ in repeat(None, most):
            size = unpack(view, at)[0]
            if size < RECORD_MIN_BYTES:
                break
            at += size
            found(at)
    except struct.error:  # behind the end
        pass
    if at > len(view):
        starts.pop()
    return starts


def _leap(view: memoryview, at: int, size: int, most: int) -> Ints:
    """The starts of the next records that all have this length."""
    whole = max(0, min((len(view) - at) // size, most, _LEAP))
    other = np.ndarray((whole,), _LENGTH, view, at, (size,)) != size if whole else np.zeros(0)
    alike = int(other.argmax()) if other.any() else whole
    return np.arange(at, at + alike * size, size, dtype=np.int64)
