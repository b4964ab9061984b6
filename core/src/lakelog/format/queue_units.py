"""Units of a simple queue as bytes: ``offset i64 | size i32 | tagsCode i64``, big-endian.

Source: RocketMQ's ``ConsumeQueue``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
UNIT_BYTES: Final = UNIT.itemsize

RawUnits = NDArray[Any]
