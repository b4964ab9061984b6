"""Which records of a batch share a topic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lakelog.accelerate import current
from lakelog.codec.recordbatch import RecordBatch

Places = NDArray[np.int64]


def topic_groups(batch: RecordBatch) -> tuple[list[str], Places]:
    """The topics of a batch, and for each record the number of its topic."""
    accelerator = current()
    if accelerator is not None:
        found = accelerator.topic_numbers(batch.buffer, batch.topic_positions, batch.topic_lengths)
        if found is not None:
            numbers, firsts = found
            names = [_topic(batch, record).decode(errors="replace") for record in firsts]
            return names, np.frombuffer(numbers, np.int64)
    known: dict[bytes, int] = {}
    each = [known.setdefault(_topic(batch, at), len(known)) for at in range(len(batch))]
    return [name.decode(errors="replace") for name in known], np.array(each, np.int64)


def _topic(batch: RecordBatch, record: int) -> bytes:
    start = int(batch.topic_positions[record])
    return bytes(batch.buffer[start : start + int(batch.topic_lengths[record])])
