"""Checksums of many new records at once, as :mod:`lakelog.codec.recordcrc` has them of one."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.checksum import CRC31_MASK, crc32
from lakelog.codec.dtypes import anywhere
from lakelog.codec.recordcrc import DIGITS, PLACEHOLDER, START
from lakelog.layout import RECORD_CRC_BYTES
from lakelog.message import Body

Ints = NDArray[np.int64]

_SEAL: Final = np.dtype((np.void, RECORD_CRC_BYTES))
_POWERS: Final = 10 ** np.arange(DIGITS, dtype=np.int64)
"""Of each digit, the least significant first."""


def seal_all(buffer: bytearray, starts: Ints, ends: Ints) -> None:
    """Write the checksum of each record over its last 20 bytes."""
    anywhere(buffer, _SEAL)[ends - RECORD_CRC_BYTES] = _seals(buffer, starts, ends)


def _seals(buffer: Body, starts: Ints, ends: Ints) -> NDArray[np.void]:
    """The seal of each record, from its bytes before the seal."""
    with memoryview(buffer) as view:
        covered = zip(starts.tolist(), (ends - RECORD_CRC_BYTES).tolist(), strict=True)
        crcs = [crc32(view[start:end]) & CRC31_MASK for start, end in covered]
    digits = np.fromiter(crcs, np.int64, len(crcs))[:, np.newaxis] // _POWERS % 10 + ord("0")
    seals = np.empty((len(crcs), RECORD_CRC_BYTES), np.uint8)
    seals[:] = np.frombuffer(PLACEHOLDER, np.uint8)
    seals[:, len(START) : len(START) + DIGITS] = digits
    return seals.view(_SEAL).reshape(-1)
