"""``lakelog dump``: everything in a store as JSON, for comparing stores.

The rows have the names and values of RocketMQ's own dump: ``store``, then every ``queue``, then the
messages of every queue (``msg``), the log (``rec`` and ``blank``), and every key with its offsets
in the index (``query``). Numbers are as in the record. Hosts are written ``address|port``, as Java
writes addresses: IPv6 with all eight groups, and IPv4 for an IPv4-mapped IPv6 address. Units of a
queue that are close together in the log are read at once.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict

import numpy as np
import typer

from lakelog import Store
from lakelog.format import checksum, layout, message_id
from lakelog.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY
from lakelog.format.queue_offsets import Longs, Units
from lakelog.format.record_batch import Blank, Piece, RecordBatch
from lakelog_cli.findings import DamageCounter, walk
from lakelog_cli.options import AlwaysJson, GivenStore
from lakelog_cli.output import exit_if_found, print_line, prints, write_lines
from lakelog_queues.finding import finder, results

Pieces: TypeAlias = Callable[[int, int], Iterator[Piece]]
"""Reads the log from one offset to another."""

GAP_BYTES: Final = 1 << 16
"""Largest gap between two records that is read with them."""
RUN_BYTES: Final = 16 << 20
"""Largest size of one read, about: each ends at a multiple of it."""


def queued_records(units: Units, pieces: Pieces) -> Iterator[tuple[Units, RecordBatch]]:
    """Yield ``units`` with their records; units without a whole record are omitted.

    A run of them is read at once: its offsets ascend in small steps, as in an intact queue.
    """
    if not len(units):
        return
    steps, reads = np.diff(units.offsets), np.diff(units.offsets // RUN_BYTES)
    cuts = np.flatnonzero((steps <= 0) | (steps - units.sizes[:-1] > GAP_BYTES) | (reads > 0)) + 1
    for start, end in pairwise([0, *cuts.tolist(), len(units)]):
        run = units[start:end]
        first, last = int(run.offsets[0]), int(run.offsets[-1])
        for piece in pieces(first, last + 1):
            if isinstance(piece, RecordBatch):
                yield from _met(run, piece)


def _met(run: Units, batch: RecordBatch) -> Iterator[tuple[Units, RecordBatch]]:
    """Select the units whose records start in ``batch``."""
    places: Longs = batch.base_offset + batch.starts
    at = np.searchsorted(places, run.offsets)
    known = np.flatnonzero(places[np.minimum(at, len(places) - 1)] == run.offsets)
    if len(known):
        yield run[known], batch.take(at[known])


Row = dict[str, Any]


def rows_of(kind: str, columns: Mapping[str, Iterable[Any]]) -> Iterator[Row]:
    """Convert columns to rows."""
    for values in zip(*columns.values(), strict=True):
        yield {"kind": kind, **dict(zip(columns, values, strict=True))}


def record_columns(batch: RecordBatch) -> dict[str, list[Any]]:
    """The columns of every row of a record, by name."""
    hosts = batch.hosts()
    return {
        "topic": batch.topics,
        "queueId": batch.queue_ids.tolist(),
        "queueOffset": batch.queue_offsets.tolist(),
        "physOffset": batch.physical_offsets.tolist(),
        "storeSize": batch.sizes.tolist(),
        "magic": [f"{magic:08x}" for magic in batch.magics.tolist()],
        "sysFlag": batch.sys_flags.tolist(),
        "flag": batch.flags.tolist(),
        "bodyCRC": batch.body_crcs.tolist(),
        "bornTimestamp": batch.born_timestamps_ms.tolist(),
        "bornHost": [java_host(born) for born, _ in hosts],
        "storeTimestamp": batch.store_timestamps_ms.tolist(),
        "storeHost": [java_host(store) for _, store in hosts],
        "reconsumeTimes": batch.reconsume_times.tolist(),
        "preparedTransactionOffset": batch.prepared_transaction_offsets.tolist(),
        "rawCrc32": [checksum.crc32(batch.record(at)) for at in range(len(batch))],
    }


@lru_cache(maxsize=4096)
def java_host(host: str) -> str:
    """A host as Java's ``InetAddress`` prints it.

    >>> java_host("10.0.0.1:80"), java_host("[2001:db8::1]:80")
    ('10.0.0.1|80', '2001:db8:0:0:0:0:0:1|80')
    """
    address, _, port = host.rpartition(":")
    ip = ipaddress.ip_address(address.strip("[]"))
    if ip.version == 4:
        return f"{ip}|{port}"
    if ip.ipv4_mapped:
        return f"{ip.ipv4_mapped}|{port}"
    groups = ":".join(f"{int(group, 16):x}" for group in ip.exploded.split(":"))
    return f"{groups}|{port}"


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
    queued = max((each["maxPhysicOffset"] for each in queues), default=NO_OFFSET)
    return {
        "kind": "store",
        "loaded": True,
        "abortFilePresent": (store.path / layout.ABORT_FILE).exists(),
        "minPhyOffset": store.min_offset,
        "maxPhyOffset": store.max_offset,
        "confirmOffset": store.max_offset,
        "maxPhyOffsetInConsumeQueue": queued,
    }


def queue_line(store: Store, queue: results.QueueInfo) -> Row:
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


def _max_physical_offset(store: Store, queue: results.QueueInfo) -> int:
    """The end of the last unit's record; for batch queues its start, as in RocketMQ."""
    if queue.kind != BATCH_QUEUE:
        return queue.max_physical_offset
    units = store.queue_units(queue.topic, queue.queue_id, queue.max_offset - 1, 1)
    return int(units.offsets[-1]) if len(units) else queue.max_physical_offset


def message_lines(store: Store, queue: results.QueueInfo, problems: list[str]) -> Iterator[Row]:
    """Yield a row per unit with its record; units without a whole record go to ``problems``."""
    at = queue.min_offset
    while at < queue.max_offset:
        units = store.queue_units(queue.topic, queue.queue_id, at, UNITS)
        if not len(units):
            problems.append(f"queue {queue.topic}/{queue.queue_id}: no unit for offset {at}")
            return
        left = len(units)
        for some, records in queued_records(units, store.scan_pieces):
            left -= len(some)
            columns = record_columns(records) | _content(records) | _units(queue, some)
            yield from rows_of("msg", columns)
        if left:
            place = f"queue {queue.topic}/{queue.queue_id} from offset {at}"
            problems.append(f"{place}: {left} units point to no whole record")
        at = int(units.queue_offsets[-1] + units.counts[-1])


def _content(batch: RecordBatch) -> dict[str, list[Any]]:
    offsets = batch.physical_offsets.tolist()
    stored = [store for _, store in batch.hosts()]
    properties = list(map(java_properties, batch.property_strings))
    return {
        "msgId": list(map(message_id.format_message_id, stored, offsets)),
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


def _units(queue: results.QueueInfo, units: Units) -> dict[str, list[Any]]:
    return {
        "cqTopic": [queue.topic] * len(units),
        "cqQueueId": [queue.queue_id] * len(units),
        "cqOffset": units.queue_offsets.tolist(),
        "cqPos": units.offsets.tolist(),
        "cqSize": units.sizes.tolist(),
        "tagsCode": units.tags_codes.tolist(),
        "batchNum": units.counts.tolist(),
    }


class StoreLine(TypedDict):
    """The store."""

    kind: Literal["store"]
    loaded: bool
    abortFilePresent: bool
    minPhyOffset: int
    maxPhyOffset: int
    confirmOffset: int
    maxPhyOffsetInConsumeQueue: int


class QueueLine(TypedDict):
    """A queue."""

    kind: Literal["queue"]
    topic: str
    queueId: int
    cqType: str
    minOffset: int
    maxOffset: int
    maxPhysicOffset: int


class RecordFields(TypedDict):
    """The fields of every line of a record.

    :ivar magic: eight hexadecimal digits
    :ivar bornHost: ``address|port``, in the format of Java
    :ivar rawCrc32: CRC-32 of the whole record
    """

    topic: str
    queueId: int
    queueOffset: int
    physOffset: int
    storeSize: int
    magic: str
    sysFlag: int
    flag: int
    bodyCRC: int
    bornTimestamp: int
    bornHost: str
    storeTimestamp: int
    storeHost: str
    reconsumeTimes: int
    preparedTransactionOffset: int
    rawCrc32: int


class MessageLine(RecordFields):
    """A message of a queue, with its unit in the queue.

    :ivar body: the body in base64; null if it is empty
    :ivar cqPos: the physical offset in the unit
    """

    kind: Literal["msg"]
    msgId: str
    tags: str | None
    keys: str | None
    properties: dict[str, str]
    body: str | None
    cqTopic: str
    cqQueueId: int
    cqOffset: int
    cqPos: int
    cqSize: int
    tagsCode: int
    batchNum: int


class RecordLine(RecordFields):
    """A record of the log.

    :ivar pos: its physical offset
    """

    kind: Literal["rec"]
    pos: int


class BlankLine(TypedDict):
    """The blank record at the end of a segment."""

    kind: Literal["blank"]
    physOffset: int
    size: int


class QueryLine(TypedDict):
    """A key with its offsets in the index."""

    kind: Literal["query"]
    topic: str
    key: str
    physOffsets: list[int]


@prints(StoreLine, QueueLine, MessageLine, RecordLine, BlankLine, QueryLine, is_always=True)
def dump(
    store: GivenStore,
    records: Annotated[
        bool, typer.Option("--records", help="Print only the records and blanks of the log.")
    ] = False,
    _as_json: AlwaysJson = True,
) -> None:
    """Print the store, its queues, their messages, the log, and all keys, as lines of JSON.

    Damage has no line: it is reported on stderr, the records behind it follow, and the exit code is
    1. If the store is written to meanwhile, later lines may be newer than earlier ones.
    """
    damages = DamageCounter()
    with store.read() as opened:
        write_lines(_log(opened, None, damages) if records else _everything(opened, damages))
    exit_if_found(damages.count)


def _everything(store: Store, damages: DamageCounter) -> Iterator[Row]:
    queues = store.queues()
    rows = [queue_line(store, queue) for queue in queues]
    yield store_line(store, rows)
    yield from rows
    problems: list[str] = []
    for queue in queues:
        yield from message_lines(store, queue, problems)
    for problem in problems:
        print_line(f"damaged: {problem}", err=True)
    damages.count += len(problems)
    keys: dict[str, set[str]] = {}
    yield from _log(store, keys, damages)
    for topic in sorted(keys, key=finder.java_order):
        for key in sorted(keys[topic], key=finder.java_order):  # offsets may include other topics'
            found = store.query_offsets(topic, key, max_count=QUERY_LIMIT)
            yield {"kind": "query", "topic": topic, "key": key, "physOffsets": sorted(found)}


def _log(store: Store, keys: dict[str, set[str]] | None, damages: DamageCounter) -> Iterator[Row]:
    """Yield the rows of the log, and add its keys to ``keys``, by topic."""
    for piece in walk(store, damages):
        if isinstance(piece, RecordBatch):
            columns = record_columns(piece) | {"pos": piece.physical_offsets.tolist()}
            yield from rows_of("rec", columns)
            if keys is not None:
                _add_keys(keys, piece)
        elif isinstance(piece, Blank):
            yield {"kind": "blank", "physOffset": piece.offset, "size": piece.size}


def _add_keys(keys: dict[str, set[str]], batch: RecordBatch) -> None:
    """Add the unique key and the keys of each record, including rolled back ones."""
    for topic, text in zip(batch.topics, batch.property_strings, strict=True):
        properties = java_properties(text)
        found = [properties.get(UNIQUE_KEY, ""), *properties.get(KEYS, "").split(KEY_SEPARATOR)]
        keys.setdefault(topic, set()).update(filter(None, found))
