"""Records in parts of a bounded size, so that no column passes what Arrow can address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch


def steps(batch: RecordBatch, rows: NDArray[np.int64], step_bytes: int) -> Iterator[RecordBatch]:
    """``rows`` of a batch in parts of about so many bytes, or of one larger record."""
    behind = np.cumsum(batch.sizes[rows], dtype=np.int64) // step_bytes
    for part in np.split(rows, np.flatnonzero(np.diff(behind)) + 1):
        if len(part):
            yield batch.take(part)
