"""The rows of ``dump``, with the names and values of RocketMQ's own dump.

``store``, then every ``queue``, then the messages of every queue (``msg``), the log (``rec`` and
``blank``), and every key with its offsets in the index (``query``).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from lakelog import Store
from lakelog.format.layout import ABORT_FILE
from lakelog.format.message_id import format_message_id
from lakelog.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY
from lakelog_cli.queuedrecords import Queued, queued_records
from lakelog_cli.recordlines import Row, record_columns, rows_of
from lakelog_format.codec.record_batch import RecordBatch
from lakelog_queues.finding.byqueue import java_order
from lakelog_queues.finding.results import QueueInfo

QUERY_LIMIT: Final = 64
"""RocketMQ's limit on the results of a query."""
UNITS: Final = 4096
"""Number of units read at once."""
BATCH_QUEUE: Final = "BatchCQ"
NO_OFFSET: Final = -1


def store_line(store: Store, queues: Iterable[Row]) -> Row:
    """The row of the whole store, from the rows of its queues.

    A store that cannot be loaded cannot be dumped, so ``loaded`` is always true.
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
    """The end of the last unit's record; for batch queues its start, as in RocketMQ."""
    if queue.kind != BATCH_QUEUE:
        return queue.max_physical_offset
    units = store.queue_units(queue.topic, queue.queue_id, queue.max_offset - 1, 1)
    return int(units.offsets[-1]) if len(units) else queue.max_physical_offset


def message_lines(store: Store, queue: QueueInfo, problems: list[str]) -> Iterator[Row]:
    """Yield a row per unit with its record; units without a whole record go to ``problems``."""
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
    r"""Properties as RocketMQ decodes them; properties with an empty value are dropped.

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
    """The keys of all records of a log, by topic."""

    _topics: dict[str, set[str]] = attrs.field(factory=dict, init=False)

    def add(self, batch: RecordBatch) -> None:
        """Add the unique key and the keys of each record, including rolled back ones."""
        for topic, text in zip(batch.topics, batch.property_strings, strict=True):
            properties = java_properties(text)
            keys = self._topics.setdefault(topic, set())
            if UNIQUE_KEY in properties:
                keys.add(properties[UNIQUE_KEY])
            keys.update(filter(None, properties.get(KEYS, "").split(KEY_SEPARATOR)))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield topics and keys, in Java's order."""
        for topic in sorted(self._topics, key=java_order):
            for key in sorted(self._topics[topic], key=java_order):
                yield topic, key


def query_line(store: Store, topic: str, key: str) -> Row:
    """The row of one key; its offsets are sorted, and may include those of other topics."""
    found = store.query_offsets(topic, key, max_count=QUERY_LIMIT)
    return {"kind": "query", "topic": topic, "key": key, "physOffsets": sorted(found)}
