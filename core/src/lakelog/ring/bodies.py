"""Whether bodies are what their checksums say, which their producer computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lakelog.checksum import CRC31_MASK, crc32

Ints = NDArray[np.int64]


def bodies_hold(records: memoryview, starts: Ints, ends: Ints, stated: NDArray[Any]) -> bool:
    """Whether all of them do."""
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    crcs = [crc32(records[at:end]) & CRC31_MASK for at, end in places]
    return bool(crcs == stated.tolist())
