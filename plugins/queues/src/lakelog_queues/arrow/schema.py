"""Names and types of the columns of a message table; all are nullable.

Times are microseconds since 1970 in UTC, because Spark and Iceberg do not support milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from lakelog.arguments import WrongValue, wrong_type

_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[dict[str, Any]] = {
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "physical_offset": pa.int64(),
    "store_size": pa.int32(),
    "message_id": pa.string(),
    "unique_key": pa.string(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "body": pa.binary(),
    "body_crc": pa.int32(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "transaction_type": pa.string(),
    "born_timestamp": _TIME,
    "born_host": pa.string(),
    "store_timestamp": _TIME,
    "store_host": pa.string(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
}
COLUMNS: Final = tuple(_TYPES)
"""All column names, in table order."""


def schema(columns: Iterable[str] | None = None) -> pa.Schema:
    """The schema of ``columns`` in the given order, or of all columns.

    Raises ``ValueError`` for an unknown or repeated name, and ``TypeError`` for a single string.
    """
    if isinstance(columns, str):
        raise wrong_type("columns", columns, f"a list such as [{columns!r}]")
    names = COLUMNS if columns is None else tuple(columns)
    unknown = [name for name in names if name not in _TYPES]
    if unknown:
        raise WrongValue(f"column {unknown[0]!r} is unknown; there are {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        raise WrongValue(f"a column is given twice: {', '.join(names)}")
    return pa.schema([(name, _TYPES[name]) for name in names])


def empty(columns: Iterable[str] | None = None) -> pa.RecordBatch:
    """A record batch without rows."""
    wanted = schema(columns)
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in wanted], schema=wanted)
