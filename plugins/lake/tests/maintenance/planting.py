"""Tables whose rows are changed by somebody who knows nothing of lakelog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from lakelog_lake.sinks.parquet import ParquetSink


def change(path: Path, topic: str, changed: Callable[[pa.Table], pa.Table]) -> None:
    """Write the first file of ``topic`` again, with other rows."""
    entry = next(each for each in ParquetSink(path).files() if each["topic"] == topic)
    file = path / entry["path"]
    table = parquet.read_table(file, partitioning=None)
    parquet.write_table(changed(table), file, store_schema=False)


def with_value(table: pa.Table, row: int, name: str, value: object) -> pa.Table:
    """The same table, with another value in one place."""
    values = table[name].to_pylist()
    values[row] = value
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table[name].type))


def without(table: pa.Table, *rows: int) -> pa.Table:
    """The same table, without some rows."""
    kept = [row for row in range(table.num_rows) if row not in rows]
    return table.take(kept)


def doubled(table: pa.Table, row: int) -> pa.Table:
    """The same table, with a row twice."""
    return pa.concat_tables([table, table.slice(row, 1)])


def moved_behind(table: pa.Table, row: int, offset: int | None) -> pa.Table:
    """The same table, and a row more that claims another place in the log."""
    more = with_value(table.slice(row, 1), 0, "physical_offset", offset)
    return pa.concat_tables([table, more])
