"""Light queues: one record has units in several queues.

``INNER_MULTI_DISPATCH`` lists queues, and ``INNER_MULTI_QUEUE_OFFSET`` the queue offset in each. If
the lists differ in length, as with a name that is no light queue's, the record gets no unit in any
of them. Source: RocketMQ's ``ConsumeQueue.multiDispatchLmqQueue`` and ``MultiDispatchUtils``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    LIGHT_QUEUE_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    decode_properties,
    feeds_light_queues,
)
from lakelog.format.queue_offsets import Queue
from lakelog_format.codec.record_batch import RecordBatch
from lakelog_queues.units.foldernames import names_folder

_LOG: Final = logging.getLogger(__name__)
_NAMED: Final = INNER_MULTI_QUEUE_OFFSET.encode()
_SEARCH: Final = re.compile(re.escape(_NAMED))


def light_units(batch: RecordBatch, queued: NDArray[np.bool_]) -> Iterator[tuple[Queue, int, int]]:
    """Queue, queue offset and index of the record for each unit, in the order of the log.

    :param queued: for each record, whether it may have units
    """
    if _SEARCH.search(batch.buffer) is None:
        return
    for record in np.flatnonzero(queued).tolist():
        start = int(batch.property_positions[record])
        raw = bytes(batch.buffer[start : start + int(batch.property_lengths[record])])
        if _NAMED in raw:
            yield from _units_of(batch, record, decode_properties(raw))


def _units_of(
    batch: RecordBatch, record: int, properties: dict[str, str]
) -> Iterator[tuple[Queue, int, int]]:
    topic = batch[record : record + 1].topics[0]
    names = _split(properties.get(INNER_MULTI_DISPATCH, ""))
    offsets = _split(properties.get(INNER_MULTI_QUEUE_OFFSET, ""))
    if not (feeds_light_queues(topic) and names and offsets):
        return
    if len(names) != len(offsets) or not all(text.isdecimal() for text in offsets):
        _LOG.warning(
            "the record at %d of topic %s gets no light units: it lists %d queues and %d offsets",
            int(batch.physical_offsets[record]),
            topic,
            len(names),
            len(offsets),
        )
        return
    for name, offset in zip(names, offsets, strict=True):
        if names_folder(name):
            light = name.startswith(LIGHT_QUEUE_PREFIX)
            yield (name, 0 if light else int(batch.queue_ids[record])), int(offset), record


def _split(text: str) -> list[str]:
    """The elements of a list, without trailing empty ones, like Java's ``String.split``."""
    return text.rstrip(MULTI_DISPATCH_SEPARATOR).split(MULTI_DISPATCH_SEPARATOR) if text else []
