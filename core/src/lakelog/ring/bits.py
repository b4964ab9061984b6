"""What rows of bytes have in common, byte by byte: two sums tell it of all of them at once."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

Octets = NDArray[np.uint8]

_ROWS: Final = 32


@attrs.frozen(slots=True, eq=False)
class Bits:
    """What many rows have in common.

    :ivar some: bits that are set in one of them at least
    :ivar every: bits that are set in all of them
    """

    some: bytes
    every: bytes

    @classmethod
    def of(cls, octets: Octets) -> Bits:
        """Those of the rows of ``octets``."""
        return cls(_folded(np.bitwise_or, octets), _folded(np.bitwise_and, octets))

    def alike(self, at: int, mask: int) -> bool:
        """Whether the bits of ``mask`` in a byte are the same everywhere."""
        return not (self.some[at] ^ self.every[at]) & mask

    def only(self, start: int, end: int) -> bytes | None:
        """These bytes, if they are the same everywhere."""
        some = self.some[start:end]
        return some if some == self.every[start:end] else None


def _folded(how: Any, octets: Octets) -> bytes:
    """All rows in one; some side by side first, since NumPy is fast with long rows only."""
    count, width = octets.shape
    side = count // _ROWS
    rows = how.reduce(octets[: side * _ROWS].reshape(_ROWS, side * width)).reshape(side, width)
    whole: bytes = how.reduce(np.concatenate((rows, octets[side * _ROWS :]))).tobytes()
    return whole
