"""A store as the lines of ``dump``: names and values as the real store's own dump has them.

``store``, then every ``queue``, then the messages of every queue (``msg``), the log (``rec`` and
``blank``), and every key with the offsets that the index has for it (``query``).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from lakelog.codec.recordbatch import RecordBatch
from lakelog.format.layout import ABORT_FILE
from lakelog.format.message_id import format_message_id
from lakelog.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY
from lakelog.reading.byqueue import java_order
from lakelog.reading.results import QueueInfo
from lakelog.store.store import Store
from lakelog_cli.queuedrecords import Queued, queued_records
from lakelog_cli.recordlines import Row, record_columns, rows_of

QUERY_LIMIT: Final = 64
"""RocketMQ answers a query with no more."""
UNITS: Final = 4096
"""How many units are read at once."""
BATCH_QUEUE: Final = "BatchCQ"
NO_OFFSET: Final = -1


def store_line(store: Store, queues: Iterable[Row]) -> Row:
    """The row of the whole store, from the rows of its queues.

    A store that could not be loaded is not open.
    """
    return {
        "kind": "store",
        "loaded": True,
        "abortFilePresent": (store.path / ABORT_FILE).exists(),
        "minPhyOffset": store.min_offset,
        "maxPhyOffset": store.max_offset,
        "confirmOffset": store.max_offset,
        "maxPhyOffsetInConsumeQueue": max(
            (each["maxPhysicOffset"] for each in queues), default=NO_OFFSET
        ),
    }


def queue_line(store: Store, queue: QueueInfo) -> Row:
    """The row of one queue."""
    return {
        "kind": "queue",
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "cqType": queue.kind,
        "minOffset": queue.min_offset,
        "maxOffset": queue.max_offset,
        "maxPhysicOffset": _max_physical_offset(store, queue),
    }


def _max_physical_offset(store: Store, queue: QueueInfo) -> int:
    """Where the last unit's record ends; RocketMQ's queues of batches say where it starts."""
    if queue.kind != BATCH_QUEUE:
        return queue.max_physical_offset
    units = store.queue_units(queue.topic, queue.queue_id, queue.max_offset - 1, 1)
    return int(units.offsets[-1]) if len(units) else queue.max_physical_offset


def message_lines(store: Store, queue: QueueInfo, problems: list[str]) -> Iterator[Row]:
    """One row per unit of a queue, with its record; units without a whole one are ``problems``."""
    at = queue.min_offset
    while at < queue.max_offset:
        units = store.queue_units(queue.topic, queue.queue_id, at, UNITS)
        if not len(units):
            problems.append(f"queue {queue.topic}/{queue.queue_id}: no unit for offset {at}")
            return
        left = len(units)
        for queued in queued_records(units, store.scan_pieces):
            left -= len(queued.units)
            yield from _message_rows(queue, queued)
        if left:
            place = f"queue {queue.topic}/{queue.queue_id} from offset {at}"
            problems.append(f"{place}: {left} units point to no whole record")
        at = int(units.queue_offsets[-1] + units.counts[-1])


def _message_rows(queue: QueueInfo, queued: Queued) -> Iterator[Row]:
    columns = record_columns(queued.records) | _content(queued.records) | _units(queue, queued)
    return rows_of("msg", columns)


def _content(batch: RecordBatch) -> dict[str, list[Any]]:
    offsets = batch.physical_offsets.tolist()
    stored = [store for _, store in batch.hosts()]
    properties = list(map(java_properties, batch.property_strings))
    return {
        "msgId": list(map(format_message_id, stored, offsets)),
        "tags": [each.get(TAGS) for each in properties],
        "keys": [each.get(KEYS) for each in properties],
        "properties": properties,
        "body": [base64.b64encode(body).decode("ascii") or None for body in batch.bodies],
    }


def java_properties(text: bytes) -> dict[str, str]:
    r"""Properties as RocketMQ's decoder gives them, to which an empty value is none.

    >>> java_properties(b"A\x01b\x02A\x01\x02C\x01\x02")
    {'A': 'b'}
    """
    pairs = (piece.partition("\x01") for piece in text.decode(errors="replace").split("\x02"))
    return {name: value for name, _, value in pairs if name and value}


def _units(queue: QueueInfo, queued: Queued) -> dict[str, list[Any]]:
    units, count = queued.units, len(queued.units)
    return {
        "cqTopic": [queue.topic] * count,
        "cqQueueId": [queue.queue_id] * count,
        "cqOffset": units.queue_offsets.tolist(),
        "cqPos": units.offsets.tolist(),
        "cqSize": units.sizes.tolist(),
        "tagsCode": units.tags_codes.tolist(),
        "batchNum": units.counts.tolist(),
    }


@attrs.define
class KeysSeen:
    """The keys of every record of a log, by topic."""

    _topics: dict[str, set[str]] = attrs.field(factory=dict, init=False)

    def add(self, batch: RecordBatch) -> None:
        """Remember the unique key and the keys of each record, rolled back ones included."""
        for topic, text in zip(batch.topics, batch.property_strings, strict=True):
            properties = java_properties(text)
            keys = self._topics.setdefault(topic, set())
            if UNIQUE_KEY in properties:
                keys.add(properties[UNIQUE_KEY])
            keys.update(filter(None, properties.get(KEYS, "").split(KEY_SEPARATOR)))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Topics and keys, in the order that they have in Java."""
        for topic in sorted(self._topics, key=java_order):
            for key in sorted(self._topics[topic], key=java_order):
                yield topic, key


def query_line(store: Store, topic: str, key: str) -> Row:
    """The row of one key; its offsets are in their order, and other topics' may be among them."""
    found = store.query_offsets(topic, key, max_count=QUERY_LIMIT)
    return {"kind": "query", "topic": topic, "key": key, "physOffsets": sorted(found)}
