"""Records as rows of ``dump``, with the names and values of RocketMQ's own dump.

Numbers are as in the record. Hosts are written ``address|port``, as Java writes addresses: IPv6
with all eight groups, and IPv4 for an IPv4-mapped IPv6 address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from lakelog.format.checksum import crc32
from lakelog.log.reading.pieces import Blank
from lakelog_format.codec.record_batch import RecordBatch

Row = dict[str, Any]


def record_lines(batch: RecordBatch) -> Iterator[Row]:
    """One row per record of a batch."""
    return rows_of("rec", record_columns(batch) | {"pos": batch.physical_offsets.tolist()})


def rows_of(kind: str, columns: Mapping[str, Iterable[Any]]) -> Iterator[Row]:
    """Convert columns to rows."""
    for values in zip(*columns.values(), strict=True):
        yield {"kind": kind, **dict(zip(columns, values, strict=True))}


def blank_line(blank: Blank) -> Row:
    """The row of the blank record at the end of a segment."""
    return {"kind": "blank", "physOffset": blank.offset, "size": blank.size}


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
        "rawCrc32": [crc32(batch.record(at)) for at in range(len(batch))],
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
