"""The compared values of a row: 56 bytes, for any size of its body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.format.checksum import CRC31_MASK
from lakelog.format.sysflag import COMPRESSED, INNER_BATCH
from lakelog_lake.log.columns import ERROR, NAMES
from lakelog_lake.tables.partitions import DAY, HOUR
from lakelog_lake.verify.row_hash import crcs, of_bodies, of_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Facts = NDArray[np.void]

FACT: Final = np.dtype(
    [
        ("at", np.int64),  # physical offset
        ("offset", np.int64),  # queue offset
        ("takes", np.int32),  # number of queue offsets
        ("queue", np.int32),  # number of its topic and queue id, see Queues
        ("size", np.int32),  # of its record
        ("crc", np.int32),  # of the body: CRC_GOOD, CRC_BAD or CRC_UNKNOWN
        ("body", np.uint64),
        ("rest", np.uint64),  # all other columns
    ]
)
CRC_GOOD, CRC_BAD, CRC_UNKNOWN = 0, 1, 2
NO_BODY: Final = np.uint64((1 << 64) - 1)
_WHOLE: Final = frozenset({"binary", "string", "large_binary", "large_string"})
_OWN: Final = frozenset({"store", "topic", "queue_id", "queue_offset", "physical_offset", "body"})
_INNER_NUMBER: Final = "INNER_NUM"


@attrs.define
class Queues:
    """Numbers queues (topic and queue id) in order of appearance."""

    names: list[tuple[str, int]] = attrs.field(factory=list)
    _numbers: dict[tuple[str, int], int] = attrs.field(factory=dict)

    def numbers(self, topics: Any, queue_ids: Any) -> NDArray[np.int32]:
        """The number of the queue of each row, given two Arrow arrays."""
        coded = topics.cast(pa.string()).dictionary_encode()
        known = coded.dictionary.to_pylist()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        ids = queue_ids.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        both = np.stack([codes, ids])
        pairs, places = np.unique(both, axis=1, return_inverse=True)
        mine = [
            self.number(known[code] if code >= 0 else "", queue_id)
            for code, queue_id in pairs.T.tolist()
        ]
        return np.array(mine, np.int32)[places.reshape(-1)]

    def number(self, topic: str, queue_id: int) -> int:
        """The number of one queue."""
        found = self._numbers.setdefault((topic, queue_id), len(self.names))
        if found == len(self.names):
            self.names.append((topic, queue_id))
        return found


def compared(columns: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of lakelog that a table has, in lakelog's order.

    :param columns: types by name; parsed bodies cannot be compared and are left out
    """
    is_whole = columns.get("body") in _WHOLE
    return tuple(name for name in NAMES if name in columns and (name != "body" or is_whole))


def has_parsed(columns: Iterable[str]) -> bool:
    """Whether there are columns of parsed bodies; their rows may have no body."""
    return bool(set(columns) - {*NAMES, DAY, HOUR, ERROR})


def facts_of(batch: pa.RecordBatch, queues: Queues) -> Facts:
    """Compute the compared values of each row.

    :param batch: with the columns of the key, and any others of lakelog's
    """
    facts = np.zeros(batch.num_rows, FACT)
    if not batch.num_rows:
        return facts
    facts["at"] = _longs(batch, "physical_offset")
    facts["offset"] = _longs(batch, "queue_offset")
    facts["queue"] = queues.numbers(batch.column("topic"), batch.column("queue_id"))
    facts["takes"] = _takes(batch)
    if "store_size" in batch.schema.names:
        facts["size"] = _longs(batch, "store_size")
    others = [name for name in batch.schema.names if name not in _OWN]
    facts["rest"] = of_columns(batch.select(others))
    facts["crc"] = CRC_UNKNOWN
    if "body" in batch.schema.names:
        facts["body"] = of_bodies(batch.column("body"))
        facts["crc"] = _crc(batch, facts)
        lacking = batch.column("body").is_null().to_numpy(zero_copy_only=False)
        facts["body"][lacking], facts["crc"][lacking] = NO_BODY, CRC_UNKNOWN
    return facts


def _longs(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    column = batch.column(name).cast(pa.int64()).fill_null(-1)
    found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return found


def _crc(batch: pa.RecordBatch, facts: Facts) -> NDArray[np.int32]:
    """Compare with the checksum of the stored body; unknown for a body that was unpacked."""
    if not {"body_crc", "sys_flag"} <= set(batch.schema.names):
        return np.full(batch.num_rows, CRC_UNKNOWN, np.int32)
    good = (crcs(facts["body"]) & CRC31_MASK) == _longs(batch, "body_crc")
    packed = (_longs(batch, "sys_flag") & COMPRESSED) != 0
    return np.where(packed, CRC_UNKNOWN, np.where(good, CRC_GOOD, CRC_BAD)).astype(np.int32)


def _takes(batch: pa.RecordBatch) -> NDArray[np.int32]:
    """The number of queue offsets of each row: 1, except for batches."""
    takes = np.ones(batch.num_rows, np.int32)
    if not {"sys_flag", "properties"} <= set(batch.schema.names):
        return takes
    inner = np.flatnonzero(_longs(batch, "sys_flag") & INNER_BATCH)
    if len(inner):
        stated = pc.map_lookup(batch.column("properties").take(inner), _INNER_NUMBER, "last")
        counts = [each if each and each.isdigit() else "1" for each in stated.to_pylist()]
        takes[inner] = np.array(counts).astype(np.int32)
    return takes
