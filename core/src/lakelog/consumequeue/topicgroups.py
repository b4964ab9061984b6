"""Which records of a batch share a topic, found without decoding the topic of each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import anywhere
from lakelog.codec.recordbatch import RecordBatch

_ROUNDS: Final = 3
"""So many topics are found by comparing columns with one; more are told apart by hashes."""
_FEW: Final = 32
"""So many records are told apart sooner one by one than in columns."""
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_WORD_BYTES: Final = 8
_WORD: Final = np.dtype("<u8")

Places = NDArray[np.int64]


def topic_groups(batch: RecordBatch) -> tuple[list[str], Places]:
    """The topics of a batch, and for each record the number of its topic."""
    numbers = np.full(len(batch), -1, np.int64)
    names: list[str] = []
    left = np.arange(len(batch))
    if len(left) <= _FEW:
        _number_one_by_one(batch, left, names, numbers)
        return names, numbers
    while len(left) and len(names) < _ROUNDS:
        same = _alike(batch, left)
        numbers[left[same]] = len(names)
        names.append(_topic(batch, int(left[0])).decode(errors="replace"))
        left = left[~same]
    # what np.unique does first, it does by importing masked arrays: 50 ms in a process of its own
    for length in np.flatnonzero(np.bincount(batch.topic_lengths[left])).tolist():
        _number_by_hash(batch, left[batch.topic_lengths[left] == length], names, numbers)
    return names, numbers


def _alike(batch: RecordBatch, among: Places) -> NDArray[np.bool_]:
    """Which of some records have the topic of the first of them."""
    positions = batch.topic_positions[among]
    length = int(batch.topic_lengths[among[0]])
    same: NDArray[np.bool_] = batch.topic_lengths[among] == length
    words, steps, shift = _words(batch, length)
    for at in steps:
        here = np.flatnonzero(same)
        column = words[positions[here] + at] >> shift
        same[here] = column == column[0]
    return same


def _words(batch: RecordBatch, length: int) -> tuple[NDArray[Any], list[int], np.uint64]:
    """Topics of one length as whole words, the last one reaching back.

    The word of a short one begins before the topic, in the record; a shift drops what is not of it.
    """
    last = length - _WORD_BYTES
    steps = sorted({*range(0, last, _WORD_BYTES), last}) if length else []
    return anywhere(batch.buffer, _WORD), steps, np.uint64(8 * max(0, -last))


def _number_by_hash(batch: RecordBatch, left: Places, names: list[str], numbers: Places) -> None:
    """Tell apart topics of one length; equal hashes are believed only of equal topics."""
    words, steps, shift = _words(batch, int(batch.topic_lengths[left[0]]))
    positions = batch.topic_positions[left]
    hashes = np.zeros(len(left), np.uint64)
    for at in steps:
        hashes = (hashes ^ (words[positions + at] >> shift)) * _FACTOR
        hashes ^= hashes >> np.uint64(29)
    _, first, groups = np.unique(hashes, return_index=True, return_inverse=True)
    same = np.ones(len(left), np.bool_)
    for at in steps:
        others = positions[first[groups]]
        same &= words[positions + at] >> shift == words[others + at] >> shift
    numbers[left[same]] = len(names) + groups[same]
    names += [_topic(batch, int(left[at])).decode(errors="replace") for at in first.tolist()]
    _number_one_by_one(batch, left[~same], names, numbers)


def _topic(batch: RecordBatch, record: int) -> bytes:
    start = int(batch.topic_positions[record])
    return bytes(batch.buffer[start : start + int(batch.topic_lengths[record])])


def _number_one_by_one(batch: RecordBatch, left: Places, names: list[str], numbers: Places) -> None:
    known: dict[bytes, int] = {}
    starts, lengths = batch.topic_positions[left].tolist(), batch.topic_lengths[left].tolist()
    for record, start, length in zip(left.tolist(), starts, lengths, strict=True):
        raw = bytes(batch.buffer[start : start + length])
        if raw not in known:
            known[raw] = len(names)
            names.append(raw.decode(errors="replace"))
        numbers[record] = known[raw]
