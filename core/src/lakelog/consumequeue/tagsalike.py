"""Tags codes of records whose property strings have one layout, as those of one producer often do.

Rows have one layout if separators stand at the same places, and the names of properties, as far as
one could be ``TAGS``, are the same. What the first row says then holds for all.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

TAGS: Final = b"TAGS"
_MARK: Final = TAGS + NAME_VALUE_SEPARATOR
_NAME_ENDS: Final = NAME_VALUE_SEPARATOR[0]
_VALUE_ENDS: Final = PROPERTY_SEPARATOR[0]
_NOT_ASCII: Final = 0x80

Octets = NDArray[np.uint8]
Longs = NDArray[np.int64]


def alike_codes(block: Octets) -> Longs | None:
    """The code of each row of property strings; ``None`` if they are not of one layout."""
    if not _alike(block):
        return None
    value = block[:, _value(block[0].tobytes())]
    if not value.size:
        return np.zeros(len(block), np.int64)
    if value.max() >= _NOT_ASCII:
        return None
    codes = value.astype(np.uint32) @ _weights(value.shape[1])
    return codes.view(np.int32).astype(np.int64)


def _alike(block: Octets) -> bool:
    for separator in (_NAME_ENDS, _VALUE_ENDS):
        places = block == separator
        if (places != places[0]).any():
            return False
    names = np.flatnonzero(block[0] == _NAME_ENDS)
    letters = (names[:, np.newaxis] - np.arange(len(TAGS) + 1)).reshape(-1)
    letters = letters[letters >= 0]
    return not (block[:, letters] != block[0, letters]).any()


def _value(row: bytes) -> slice:
    """Where the value of ``TAGS`` stands that counts: the last that is not empty."""
    found, at = slice(0), row.find(_MARK)
    while at >= 0:
        start = at + len(_MARK)
        end = row.find(PROPERTY_SEPARATOR, start)
        end = len(row) if end < 0 else end
        if end > start and (at == 0 or row[at - 1] == _VALUE_ENDS):
            found = slice(start, end)
        at = row.find(_MARK, start)
    return found


def _weights(length: int) -> NDArray[np.uint32]:
    """31 to the powers from ``length - 1`` down to 0, of which 32 bits count."""
    powers = np.full(length, 31, np.uint32)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint32)[::-1]
