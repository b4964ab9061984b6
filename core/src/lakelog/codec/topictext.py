"""Whether the topics of many records are UTF-8; nearly all are ASCII, which NumPy sees at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import anywhere
from lakelog.codec.recordbatch import RecordBatch

_NOT_ASCII = 0x80
_FEW = 32
"""So many topics are looked at one by one in less time than NumPy needs to begin."""


def topics_are_text(batch: RecordBatch) -> NDArray[np.bool_]:
    """For each record, whether its topic can be decoded; topics stand inside their records."""
    good = np.ones(len(batch), np.bool_)
    known: dict[bytes, bool] = {}
    for index in _few_not_ascii(batch) if len(batch) <= _FEW else _not_ascii(batch):
        at, length = int(batch.topic_positions[index]), int(batch.topic_lengths[index])
        topic = bytes(batch.buffer[at : at + length])
        if topic not in known:
            known[topic] = _is_text(topic)
        good[index] = known[topic]
    return good


def _few_not_ascii(batch: RecordBatch) -> list[int]:
    """The same as :func:`_not_ascii`, for a few records."""
    starts, lengths = batch.topic_positions.tolist(), batch.topic_lengths.tolist()
    view = batch.buffer
    return [
        index
        for index, (at, length) in enumerate(zip(starts, lengths, strict=True))
        if not bytes(view[at : at + length]).isascii()
    ]


def _not_ascii(batch: RecordBatch) -> Iterator[int]:
    """The records whose topics need a closer look; topics of one length are gathered at once."""
    lengths, positions = batch.topic_lengths, batch.topic_positions
    for length in np.bincount(lengths).nonzero()[0].tolist():
        if length:
            these = (lengths == length).nonzero()[0]
            topics = anywhere(batch.buffer, np.dtype((np.void, length)))[positions[these]]
            letters = topics.view(np.uint8)
            if letters.max() >= _NOT_ASCII:
                odd = letters.reshape(-1, length).max(axis=1) >= _NOT_ASCII
                yield from these[odd].tolist()


def _is_text(topic: bytes) -> bool:
    try:
        topic.decode()
    except UnicodeDecodeError:
        return False
    return True
