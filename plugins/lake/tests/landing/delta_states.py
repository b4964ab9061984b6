"""What users of deltalake, Spark and others do to a Delta table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa
from deltalake import DeltaTable

from lakelog_testing.contracts.tables import STATES, TableState, TableWorld, land_second
from plugins.lake.tests.landing.lake_tables import (
    INSIDE,
    SHARED,
    adding,
    by_position,
    by_rows,
    land_more,
    marked_and_damaged,
    of_columns,
    of_history,
    of_rows,
    other_kind_inside,
    remove_dead_letters,
    removing,
    required,
    rows_of_others,
)
from plugins.lake.tests.landing.tables import files, read

Column = Callable[[dict[str, Any]], None]
"""Changes a column in Delta's JSON."""


def delta(world: TableWorld) -> DeltaTable:
    return DeltaTable(str(world.table))


def log_files(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def actions(table: Path) -> list[dict[str, Any]]:
    """Everything in the log, oldest first."""
    return [json.loads(line) for each in log_files(table) for line in each.read_text().splitlines()]


def commit(table: Path, *made: dict[str, Any], operation: str = "SET TBLPROPERTIES") -> None:
    """One more version, as other writers make it: deltalake has no call for it."""
    now_ms = round(datetime.now(UTC).timestamp() * 1000)
    info = {"timestamp": now_ms, "operation": operation, "operationParameters": {}}
    version = int(log_files(table)[-1].stem) + 1 if table.exists() else 0
    (table / "_delta_log").mkdir(parents=True, exist_ok=True)
    lines = map(json.dumps, ({"commitInfo": info}, *made))
    (table / "_delta_log" / f"{version:020d}.json").write_text("\n".join(lines))


def amend(
    table: Path,
    writer: Sequence[str] = (),
    reader: Sequence[str] = (),
    version: int = 7,
    settings: dict[str, str] | None = None,
    column: Column = lambda _: None,
    **more: Any,
) -> None:
    """Change the protocol and the metadata of a table."""
    found = actions(table)
    (metadata,) = [each["metaData"] for each in found if "metaData" in each][-1:]
    schema = json.loads(metadata["schemaString"])
    for each in schema["fields"]:
        column(each)
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": version}
    if version >= 7:
        protocol["writerFeatures"] = [*writer, *reader]
    if reader:
        protocol |= {"minReaderVersion": 3, "readerFeatures": [*reader]}
    metadata |= {"schemaString": json.dumps(schema), **more}
    metadata["configuration"] |= settings or {}
    commit(table, {"protocol": protocol}, {"metaData": metadata})


def amended(**given: Any) -> Callable[[TableWorld], None]:
    return lambda world: amend(world.table, **given)


def described(name: str, **metadata: Any) -> Column:
    """Adds to the metadata of a column."""

    def change(column: dict[str, Any]) -> None:
        if column["name"] == name:
            column["metadata"] |= {key.replace("_", "."): it for key, it in metadata.items()}

    return change


def mapped(name: Callable[[str], str]) -> Column:
    numbers = iter(range(1, 99))

    def change(column: dict[str, Any]) -> None:
        column["metadata"] |= {
            "delta.columnMapping.id": next(numbers),
            "delta.columnMapping.physicalName": name(column["name"]),
        }

    return change


BY_NAME: Final = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "98"}
REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    **{
        name: ({"writer": [name, *more]}, f"its feature {name}")
        for name, *more in (
            ("rowTracking", "domainMetadata"),
            ("inCommitTimestamp",),
            ("clustering", "domainMetadata"),
            ("allowColumnDefaults",),
            ("identityColumns",),
            ("icebergCompatV1",),
            ("somethingNew",),
        )
    },
    "typeWidening": ({"reader": ["typeWidening"]}, "its feature typeWidening"),
    "identity-of-old": ({"version": 6}, "its feature identityColumns"),
    "check": (
        {"writer": ["checkConstraints"], "settings": {"delta.constraints.few": "flag < 2"}},
        r"its CHECK constraint few \(flag < 2\)",
    ),
    "check-of-old": (
        {"version": 3, "settings": {"delta.constraints.few": "flag < 2"}},
        "its CHECK constraint few",
    ),
    "invariant": (
        {"version": 2, "column": described("flag", delta_invariants="{}")},
        "the invariant of its column flag",
    ),
    "generated": (
        {"version": 4, "column": described("day", delta_generationExpression="x")},
        "its generated column day",
    ),
    "renamed": (
        {
            "reader": ["columnMapping"],
            "settings": BY_NAME,
            "column": mapped(lambda name: "col-5f" if name == "tags" else name),
        },
        r"its column mapping by name \(tags\)",
    ),
    "mapped-by-id": (
        {
            "reader": ["columnMapping"],
            "settings": {**BY_NAME, "delta.columnMapping.mode": "id"},
            "column": mapped(str),
        },
        "its column mapping by id",
    ),
}
TAKEN: Final[dict[str, dict[str, Any]]] = {
    "features-listed": {"writer": ["invariants", "checkConstraints", "generatedColumns"]},
    "append-only": {"version": 2, "settings": {"delta.appendOnly": "true"}},
    "change-feed": {
        "writer": ["changeDataFeed"],
        "settings": {"delta.enableChangeDataFeed": "true"},
    },
    "deletion-vectors": {
        "reader": ["deletionVectors"],
        "settings": {"delta.enableDeletionVectors": "true"},
    },
    "v2-checkpoints": {"reader": ["v2Checkpoint"]},
    "mapped-by-name": {"reader": ["columnMapping"], "settings": BY_NAME, "column": mapped(str)},
}


# --- rows ---


def delete(world: TableWorld, *conditions: str) -> None:
    """One commit for each condition."""
    removing(world, "delta", lambda: [delta(world).delete(each) for each in conditions])


def delete_newest(world: TableWorld) -> None:
    places = sorted(each[-1] for each in world.messages())
    delete(world, *(f"physical_offset >= {places[-count]}" for count in (20, 40)))


def append(world: TableWorld, rows: pa.Table) -> None:
    adding(
        world,
        "delta",
        rows,
        lambda made: deltalake.write_deltalake(str(world.table), made, mode="append"),
    )


def append_copies(world: TableWorld) -> None:
    append(world, read("delta", world.table).slice(0, 9))


def foreign_append(path: Path) -> None:
    """A commit of somebody else, with no rows."""
    table = DeltaTable(str(path))
    deltalake.write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="append")


def change_values(world: TableWorld) -> None:
    delta(world).update(new_values={"flag": 77}, predicate="topic = 'topic-1'")


def merge(world: TableWorld) -> None:
    """Rows that are there, by their key; nothing changes but files."""
    rows = read("delta", world.table).slice(0, 5)
    keys = ("store", "topic", "queue_id", "queue_offset", "physical_offset")
    same = " AND ".join(f"s.{name} = t.{name}" for name in keys)
    merger = delta(world).merge(rows, same, source_alias="s", target_alias="t")
    merger.when_matched_update({"flag": "s.flag"}).execute()


def overwrite(world: TableWorld, rows: pa.Table, **more: Any) -> None:
    deltalake.write_deltalake(str(world.table), rows, mode="overwrite", **more)


def overwrite_in_part(world: TableWorld) -> None:
    rows = read("delta", world.table)
    some = rows.filter([name != "topic-1" for name in rows["topic"].to_pylist()])
    removing(world, "delta", lambda: overwrite(world, some))


def restore(world: TableWorld, version: int | datetime) -> None:
    """To a version or a time; what was deleted in between is there again."""
    delta(world).restore(version)
    world.gone.clear()
    world.options.clear()


def restore_before(world: TableWorld) -> None:
    restore(world, delta(world).version() - 1)


def restored(world: TableWorld) -> None:
    """Behind commits of two stores, of which the newest one went; others go on."""
    land_second(world)
    land_more(world)
    restore_before(world)
    foreign_append(world.table)


def restored_to_the_beginning(world: TableWorld) -> None:
    restore(world, 0)


def restored_to_a_time(world: TableWorld) -> None:
    at_ms = delta(world).history(1)[0]["timestamp"]
    land_more(world)
    delta(world).restore(datetime.fromtimestamp(at_ms / 1000, UTC))


# --- history ---


def keep_nothing(path: Path, *names: str) -> None:
    """By the settings of the table, as an owner would."""
    named = {f"delta.{name}RetentionDuration": "interval 0 seconds" for name in names}
    DeltaTable(str(path)).alter.set_table_properties(named, raise_if_not_exists=False)


def clean_up(path: Path) -> None:
    DeltaTable(str(path)).create_checkpoint()
    DeltaTable(str(path)).cleanup_metadata()


def forget_history(path: Path) -> None:
    """A foreign commit, and the removal of all that was before."""
    clean_up(path)
    foreign_append(path)
    clean_up(path)


def checkpointed(world: TableWorld) -> None:
    delta(world).create_checkpoint()


def identifiers_expired(world: TableWorld) -> None:
    keep_nothing(world.table, "setTransaction")
    land_more(world)
    delta(world).create_checkpoint()
    assert not delta(world).transaction_version(f"lakelog/{next(iter(world.stores))}")


def log_cleaned(world: TableWorld) -> None:
    keep_nothing(world.table, "log")
    land_more(world)
    forget_history(world.table)


def forgotten(world: TableWorld) -> None:
    keep_nothing(world.table, "log", "setTransaction")
    land_more(world)
    forget_history(world.table)


def deleted_and_forgotten(world: TableWorld) -> None:
    keep_nothing(world.table, "log")
    delete_newest(world)
    forget_history(world.table)


def vacuum(world: TableWorld) -> None:
    delta(world).optimize.compact()
    delta(world).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


# --- columns ---


def add_column(world: TableWorld) -> None:
    rows = read("delta", world.table).slice(0, 0)
    more = rows.append_column("note", pa.array([], pa.string()))
    deltalake.write_deltalake(str(world.table), more, mode="append", schema_mode="merge")


def null_tags(is_allowed: bool) -> Column:
    def change(column: dict[str, Any]) -> None:
        if column["name"] == "tags":
            column["nullable"] = is_allowed

    return change


def require_tags(world: TableWorld) -> None:
    delete(world, "tags is null")
    amend(world.table, version=2, column=null_tags(is_allowed=False))


def let_tags_be_null(world: TableWorld) -> None:
    amend(world.table, version=2, column=null_tags(is_allowed=True))


def partition_otherwise(world: TableWorld) -> None:
    rows = read("delta", world.table)
    overwrite(world, rows, schema_mode="overwrite", partition_by=["topic"])


def as_text_column(world: TableWorld) -> None:
    rows = read("delta", world.table)
    at = rows.schema.get_field_index("flag")
    texts = pa.array([str(each) for each in rows["flag"].to_pylist()])
    overwrite(world, rows.set_column(at, "flag", texts), schema_mode="overwrite")


# --- files ---


def data_file(world: TableWorld) -> Path:
    return min(files("delta", world.table))


def remove_newest_version(world: TableWorld) -> None:
    land_more(world)
    log_files(world.table)[-1].unlink()


def remove_a_version(world: TableWorld) -> None:
    log_files(world.table)[-2].rename(world.folder / "version")


def bring_version_back(world: TableWorld) -> None:
    number = int(log_files(world.table)[-1].stem) - 1
    (world.folder / "version").rename(world.table / "_delta_log" / f"{number:020d}.json")


def break_hint(world: TableWorld) -> None:
    """``_last_checkpoint`` names a checkpoint that is not there."""
    delta(world).create_checkpoint()
    content = json.loads(hint_of(world).read_text())
    hint_of(world).write_text(json.dumps({**content, "version": 999}))


def hint_of(world: TableWorld) -> Path:
    return world.table / "_delta_log" / "_last_checkpoint"


def shallow_clone(table: Path, clone: Path) -> None:
    """As SHALLOW CLONE makes it: a log of its own, which lists the files of the other table."""
    found = actions(table)
    protocol, metadata = (
        [each for each in found if name in each][-1] for name in ("protocol", "metaData")
    )
    metadata["metaData"]["id"] = "the-clone"
    added = [each for each in found if "add" in each]
    for each in added:
        each["add"]["path"] = f"file://{table}/{each['add']['path']}"
    commit(clone, protocol, metadata, *added, operation="CLONE")


def cloned(world: TableWorld) -> None:
    world.kept = [world.table]
    original, world.table = world.table, world.folder / "clone"
    shallow_clone(original, world.table)


OF_DELTA: Final = "a notion of Delta's"
_NO_WAY: Final = "does not show up to where the store"


def of_delta(name: str, what: str, act: Any, refused: str | None = None, **more: Any) -> TableState:
    return TableState(f"delta-{name}", what, act, refused, only=OF_DELTA, **more)


DELTA: Final = [
    *STATES,
    *SHARED,
    TableState(*INSIDE, other_kind_inside("parquet", "sub")),
    of_rows("newest-rows-deleted", "deletes the newest rows", delete_newest),
    of_rows("all-rows-deleted", "deletes all rows", lambda w: delete(w, "store <> ''")),
    of_rows(
        "rows-of-others",
        "appends rows of no store",
        lambda w: append(w, rows_of_others("delta", w)),
    ),
    of_rows("rows-copied", "appends copies of rows", append_copies),
    of_rows(
        "rows-rewritten",
        "writes all rows again, as a compaction does",
        lambda w: delta(w).optimize.compact(),
    ),
    of_rows("rows-changed", "changes values", change_values),
    of_rows(
        "overwritten-in-part",
        "overwrites the table with a part of it",
        overwrite_in_part,
        _NO_WAY,
        remedy=restore_before,
    ),
    of_history("rolled-back", "rolls the table back", restored),
    of_history("expired", "expires all snapshots but the newest", log_cleaned),
    of_history(
        "deleted-and-forgotten",
        "deletes the newest rows, expires all else, and removes the older metadata",
        deleted_and_forgotten,
        _NO_WAY,
        remedy=by_position,
    ),
    of_columns("column-added", "adds a column", add_column),
    *required(require_tags, let_tags_be_null),
    of_delta("merged", "merges rows by their key", merge),
    of_delta("z-ordered", "orders the files", lambda w: delta(w).optimize.z_order(["queue_id"])),
    of_delta("vacuumed", "compacts, and vacuums all that is not listed", vacuum),
    of_delta("restored-to-its-beginning", "restores version 0", restored_to_the_beginning),
    of_delta("restored-to-a-time", "restores a time", restored_to_a_time, _NO_WAY, remedy=by_rows),
    of_delta("checkpointed", "makes a checkpoint", checkpointed),
    of_delta("identifiers-expired", "lets transaction identifiers expire", identifiers_expired),
    of_delta(
        "forgotten",
        "cleans the log, and lets transaction identifiers expire",
        forgotten,
        _NO_WAY,
        remedy=by_rows,
    ),
    of_delta("cloned", "makes a shallow clone, and lands in it", cloned, _NO_WAY, remedy=by_rows),
    of_delta(
        "described",
        "sets a name, a description and a property",
        amended(version=2, settings={"owner": "me"}, name="mine", description="of me"),
    ),
    of_delta(
        "partitioned-otherwise",
        "overwrites the table with other partitions",
        partition_otherwise,
        "it is partitioned by topic, not by topic,day",
        remedy=restore_before,
    ),
    of_delta(
        "type-changed",
        "overwrites the table with a column of another type",
        as_text_column,
        "flag is .*string",
        remedy=restore_before,
    ),
    of_delta(
        "version-removed",
        "removes a version from the log",
        remove_a_version,
        "cannot be read",
        remedy=bring_version_back,
    ),
    of_delta(
        "checkpoint-removed",
        "removes the newest checkpoint",
        break_hint,
        "Had a _last_checkpoint hint but didn't find",
        remedy=lambda w: hint_of(w).unlink(),
    ),
    *(
        of_delta(name, f"turns on {name}", amended(**given), error)
        for name, (given, error) in REFUSED.items()
    ),
    *(of_delta(name, f"turns on {name}", amended(**given)) for name, given in TAKEN.items()),
    *marked_and_damaged(
        amended(version=2, settings={"lakelog.topic": "orders"}),
        lambda w: restore(w, delta(w).version() - 1),
        data_file,
        partial(remove_dead_letters, "delta"),
    ),
    TableState(
        "newest-commit-removed",
        "removes what the newest commit wrote, as a restored backup of the metadata does",
        remove_newest_version,
    ),
]
