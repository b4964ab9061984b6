"""The binary format of batch queues, and the units of a batch of records; pure functions.

A unit is ``offset i64 | size i32 | tagsCode i64 | storeTime i64 | baseOffset i64 | batchSize i16 |
compactedOffset i32 | reserved i32``, big-endian. Source: RocketMQ's ``BatchConsumeQueue`` and
``CommitLog.setBatchSizeIfNeeded``; core/docs/reference/format/batchconsumequeue.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lakelog.format.queue_offsets import Units
from lakelog.format.record_batch import RecordBatch
from lakelog.lazy import np
from lakelog_queues.units.tags import tags_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray


Longs: TypeAlias = "NDArray[np.int64]"
RawUnits: TypeAlias = "NDArray[Any]"

UNIT: Final = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_time", ">i8"),
        ("base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
UNIT_BYTES: Final = UNIT.itemsize
NONE: Final = np.zeros(0, UNIT)
MOST_IN_A_BATCH: Final = 0x7FFF
_NOT_COMPACTED: Final = -1
_INNER_NUM: Final = "INNER_NUM"
_INNER_BASE: Final = "INNER_BASE"
_NUMBER: Final = re.compile(r"\+?[0-9]{1,18}", re.ASCII)


def inner_batches(batch: RecordBatch) -> tuple[Units, Longs]:
    """Units and store times (``int64``, ms since 1970) of the records of batch topics.

    Two properties of a record give the queue offset of its first message and the number of its
    messages: ``INNER_BASE`` and ``INNER_NUM``. A record in which either is missing or no valid
    number gets no unit, whatever its system flags are.
    """
    found = [
        (at, int(base), int(number))
        for at, each in enumerate(batch.properties)
        for base, number in [(each.get(_INNER_BASE, ""), each.get(_INNER_NUM, ""))]
        if _NUMBER.fullmatch(base) and _NUMBER.fullmatch(number)
    ]
    at, bases, counts = np.array(found, np.int64).reshape(-1, 3).T
    fits = (counts > 0) & (counts <= MOST_IN_A_BATCH)
    at = at[fits]
    units = Units(
        bases[fits],
        batch.physical_offsets[at],
        batch.sizes[at],
        tags_codes(batch)[at],
        counts[fits].astype(np.int32),
    )
    return units, batch.store_timestamps_ms[at]


def pack(units: Units, store_times_ms: Longs) -> RawUnits:
    """Units in file format."""
    raw = np.zeros(len(units), UNIT)
    raw["offset"], raw["size"], raw["tags_code"] = units.offsets, units.sizes, units.tags_codes
    raw["store_time"], raw["base_offset"] = store_times_ms, units.queue_offsets
    raw["batch_size"], raw["compacted_offset"] = units.counts, _NOT_COMPACTED
    return raw


def unpack(raw: RawUnits) -> Units:
    """Units from file format."""
    return Units(
        raw["base_offset"].astype(np.int64),
        raw["offset"].astype(np.int64),
        raw["size"].astype(np.int32),
        raw["tags_code"].astype(np.int64),
        raw["batch_size"].astype(np.int32),
    )


def valid_length(raw: RawUnits) -> int:
    """The number of units before the first invalid one, at which RocketMQ stops as well."""
    good = (raw["offset"] >= 0) & (raw["size"] > 0)
    good &= (raw["base_offset"] >= 0) & (raw["batch_size"] > 0)
    return len(raw) if good.all() else int(good.argmin())


def readable(units: Units) -> NDArray[np.bool_]:
    """For each unit, whether it is valid; :func:`valid_length` stops at any other."""
    good = (units.offsets >= 0) & (units.sizes > 0) & (units.queue_offsets >= 0)
    good &= (units.counts > 0) & (units.counts <= MOST_IN_A_BATCH)
    return np.asarray(good, np.bool_)
