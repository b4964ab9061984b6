"""The tags code of each record of a batch.

If the property repeats, its last value that is not empty counts, as in RocketMQ.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from lakelog_format.codec.record_batch import RecordBatch
from lakelog_queues.units.javahash import hash_of_utf8

_TAGS: Final = b"TAGS"


def tags_codes(batch: RecordBatch) -> NDArray[np.int64]:
    """``int64``: the Java hash of the property ``TAGS`` of each record; 0 if it is missing."""
    return np.array([hash_of_utf8(_tags(each)) for each in batch.property_strings], np.int64)


def _tags(properties: bytes) -> bytes:
    found = b""
    for each in properties.split(PROPERTY_SEPARATOR):
        name, _, value = each.partition(NAME_VALUE_SEPARATOR)
        if name == _TAGS and value:
            found = value
    return found
