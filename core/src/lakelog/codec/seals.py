"""Record checksums of many records at once, as :mod:`lakelog.codec.recordcrc` has them of one."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.checksum import CRC31_MASK, crc32
from lakelog.codec.dtypes import anywhere
from lakelog.codec.recordbatch import RecordBatch
from lakelog.codec.recordcrc import DIGITS, PLACEHOLDER, START
from lakelog.layout import RECORD_CRC_BYTES
from lakelog.message import Body

Ints = NDArray[np.int64]

_SEAL: Final = np.dtype((np.void, RECORD_CRC_BYTES))
_START: Final = np.dtype((np.bytes_, len(START)))
_POWERS: Final = 10 ** np.arange(DIGITS, dtype=np.int64)
"""Of each digit, the least significant first."""


def seal_all(buffer: bytearray, starts: Ints, ends: Ints) -> None:
    """Write the checksum of each record over its last 20 bytes."""
    anywhere(buffer, _SEAL)[ends - RECORD_CRC_BYTES] = _seals(buffer, starts, ends)


def unbroken_seals(batch: RecordBatch) -> NDArray[np.bool_]:
    """For each record, whether it has no seal or a seal that holds."""
    good = np.ones(len(batch), np.bool_)
    sealed = _sealed(batch)
    if len(sealed):
        starts, ends = batch.starts[sealed], batch.ends[sealed]
        found = anywhere(batch.buffer, _SEAL)[ends - RECORD_CRC_BYTES]
        wanted = _seals(batch.buffer, starts, ends)
        good[sealed] = (_as_rows(found) == _as_rows(wanted)).all(axis=1)
    return good


def have_seals(batch: RecordBatch) -> NDArray[np.bool_]:
    """For each record, whether it ends with a seal, which may be broken."""
    good = np.zeros(len(batch), np.bool_)
    good[_sealed(batch)] = True
    return good


def _sealed(batch: RecordBatch) -> Ints:
    """Which records end with a property that is a seal."""
    long_enough = (batch.property_lengths >= RECORD_CRC_BYTES).nonzero()[0]
    at = batch.ends[long_enough] - RECORD_CRC_BYTES
    return np.asarray(long_enough[anywhere(batch.buffer, _START)[at] == START])


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


def _as_rows(seals: NDArray[np.void]) -> NDArray[np.uint8]:
    return seals.view(np.uint8).reshape(-1, RECORD_CRC_BYTES)
