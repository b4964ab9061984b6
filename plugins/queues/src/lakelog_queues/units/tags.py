"""The tags code of each record of a batch.

Of a name that repeats, the last value counts; like RocketMQ, an empty value never counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.record_batch import RecordBatch
from lakelog.format.java_hash import hash_of_utf8
from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_TAGS: Final = b"TAGS"


def tags_codes(batch: RecordBatch) -> NDArray[np.int64]:
    """``int64``: Java's hash of the property ``TAGS`` of each record; 0 where there is none."""
    return np.array([hash_of_utf8(_tags(each)) for each in batch.property_strings], np.int64)


def _tags(properties: bytes) -> bytes:
    found = b""
    for each in properties.split(PROPERTY_SEPARATOR):
        name, _, value = each.partition(NAME_VALUE_SEPARATOR)
        if name == _TAGS and value:
            found = value
    return found
