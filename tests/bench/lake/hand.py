"""Landing by hand, as users do it first: lakelog's columns, appended to a table by its library.

One process, the libraries' defaults, no position: a repeated run doubles the rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import lakelog
from tests.bench.lake.raw import steps

_APPEND_BYTES: Final = 1 << 30
"""Bytes of rows in one append."""


def append(store: Path, kind: str, folder: Path) -> int:
    """Append all messages to a new table, partitioned by topic and day; return their number."""
    rows = 0
    add = _iceberg(folder) if kind == "iceberg" else _delta(folder)
    with lakelog.open(store, mode="read") as opened:
        for part in steps(opened.scan_pieces(opened.min_offset), _APPEND_BYTES):
            add(part)
            rows += part.num_rows
    return rows


def _iceberg(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.transforms import DayTransform, IdentityTransform

    folder.mkdir(parents=True)
    uri = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    catalog = SqlCatalog("hand", **uri)
    catalog.create_namespace("lake")
    table: Any = None

    def add(rows: pa.Table) -> None:
        nonlocal table
        if table is None:
            table = catalog.create_table("lake.messages", rows.schema)
            with table.update_spec() as spec:
                spec.add_field("topic", IdentityTransform(), "topic_part")
                spec.add_field("store_timestamp", DayTransform(), "day_part")
        table.append(rows)

    return add


def _delta(folder: Path) -> Any:
    from deltalake import write_deltalake

    def add(rows: pa.Table) -> None:
        day = rows["store_timestamp"].cast(pa.date32())
        rows = rows.append_column("day", day)
        write_deltalake(folder, rows, mode="append", partition_by=["topic", "day"])

    return add
