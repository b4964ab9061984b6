"""What a Delta table demands of its writers and readers, by its protocol, schema and settings.

Deltalake adds files without a look into them: CHECK constraints, generated columns and physical
names of columns are left to the caller. A table that demands such a thing is refused by name before
the first file is written, and so is one with a feature of the protocol that deltalake does not
write. Columns that must not be null are checked row by row instead
(:func:`~lakelog_lake.tables.shape.refused`).

A table may list a feature that no column and no setting uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakelog_lake.errors import DemandsUnmet

if TYPE_CHECKING:
    from deltalake import DeltaTable

_BY_USE: Final = ("invariants", "checkConstraints", "generatedColumns", "columnMapping")
"""Features that are refused only where a column or a setting uses them."""
_HARMLESS: Final = (
    *("appendOnly", "changeDataFeed", "deletionVectors", "timestampNtz", "v2Checkpoint"),
    *("variantType", "variantType-preview"),
)
"""Features that demand nothing of a commit that only adds files."""
_IMPLIED: Final = {6: ("identityColumns",)}
"""What an older version of the protocol demands without a list."""
_LISTED: Final = 7
"""The newest version of the protocol, from which on there is a list."""
_COLUMNS: Final = {
    "delta.generationExpression": "its generated column",
    "delta.invariants": "the invariant of its column",
}
_CHECK: Final = "delta.constraints."
_MAPPING: Final = "delta.columnMapping.mode"
_PHYSICAL: Final = "delta.columnMapping.physicalName"


def demands(table: DeltaTable) -> list[str]:
    """What the table demands that cannot be done here, each as text."""
    protocol, settings = table.protocol(), table.metadata().configuration
    version = protocol.min_writer_version
    features = {*(protocol.writer_features or ()), *_IMPLIED.get(version, ())}
    found = [f"its feature {each}" for each in sorted(features.difference(_BY_USE, _HARMLESS))]
    if version > _LISTED:
        found.append(f"version {version} of its protocol")
    found += [
        f"its CHECK constraint {name.removeprefix(_CHECK)} ({expression})"
        for name, expression in sorted(settings.items())
        if name.startswith(_CHECK)
    ]
    for field in table.schema().fields:
        found += [f"{what} {field.name}" for key, what in _COLUMNS.items() if key in field.metadata]
    mode = settings.get(_MAPPING, "none").lower()
    renamed = sorted(_renamed(json.loads(table.schema().to_json())))
    if mode not in ("none", "name") or (mode == "name" and renamed):
        which = f" ({', '.join(renamed)})" if renamed else ""
        found.append(f"its column mapping by {mode}{which}")
    return found


def _renamed(kind: Any) -> Iterator[str]:
    """The columns, nested ones included, whose name in files is another one.

    :param kind: a type in Delta's JSON
    """
    if not isinstance(kind, dict):
        return
    for each in kind.get("fields", ()):
        if each.get("metadata", {}).get(_PHYSICAL, each["name"]) != each["name"]:
            yield each["name"]
        yield from _renamed(each["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from _renamed(kind.get(inner))


def is_mapped(table: DeltaTable) -> bool:
    """Whether each new column needs an id and a physical name."""
    return table.metadata().configuration.get(_MAPPING, "none").lower() != "none"


def is_append_only(table: DeltaTable) -> bool:
    """Whether rows must not be removed."""
    return table.metadata().configuration.get("delta.appendOnly", "false").lower() == "true"


def check(name: str, table: DeltaTable) -> None:
    """Raise ``DemandsUnmet`` for a table with :func:`demands`."""
    found = demands(table)
    if found:
        raise DemandsUnmet(name, found)


def form(table: DeltaTable) -> tuple[str, ...]:
    """What identifies a table, its columns, partitions and demands."""
    metadata, protocol = table.metadata(), table.protocol()
    asked = {k: it for k, it in metadata.configuration.items() if k == _MAPPING or _CHECK in k}
    return (
        str(metadata.id),
        json.dumps(json.loads(table.schema().to_json()), sort_keys=True),  # its order is random
        *metadata.partition_columns,
        str(protocol.min_writer_version),
        *sorted(protocol.writer_features or ()),
        json.dumps(asked, sort_keys=True),
    )


def is_elsewhere(path: str) -> bool:
    """Whether a path in the log is a URI: that of a file which a shallow clone shares."""
    return "://" in path or path.startswith("file:/")


BATCH_ROWS: Final = 16_384


def rows(table: DeltaTable, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows of a version, in the table's types and in any order.

    Nothing is yielded if the table has not all of them. Arrow reads no tables with deletion vectors
    or column mapping, and no shallow clones. DataFusion does, which is part of deltalake. No filter
    is given: a file without statistics of a column would count as empty.
    """
    known = pa.schema(table.schema().to_arrow())
    if not set(columns) <= set(known.names):
        return
    paths = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    if table.protocol().min_reader_version == 1 and not any(map(is_elsewhere, paths)):
        dataset = table.to_pyarrow_dataset()
        yield from dataset.to_batches(
            columns=list(columns), batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
        )
        return
    from deltalake import QueryBuilder

    names = ", ".join(f'"{each}"' for each in columns)
    statement = f"SELECT {names} FROM t"
    found = QueryBuilder().register("t", table).execute(statement)
    wanted = pa.schema([known.field(each) for each in columns])
    for batch in pa.RecordBatchReader.from_stream(found):
        yield batch.cast(wanted)
