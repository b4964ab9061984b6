"""What users of pyiceberg do to an Iceberg table."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    RemoveSnapshotsUpdate,
    SetDefaultSortOrderUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform
from pyiceberg.types import LongType, StringType

from lakelog_lake.sinks.iceberg import CATALOG_FILE, sqlite_catalog
from lakelog_testing.contracts.tables import STATES, TableState, TableWorld, land_second
from plugins.lake.tests.landing.lake_tables import (
    INSIDE,
    SHARED,
    adding,
    by_position,
    by_rows,
    changed,
    land_more,
    marked_and_damaged,
    of_columns,
    of_history,
    of_rows,
    other_kind_inside,
    removing,
    required,
    rows_of_others,
)
from plugins.lake.tests.landing.tables import TABLE, files, iceberg, keys_in, read

Change = Callable[[Table], object]


def table_of(world: TableWorld) -> Any:
    return iceberg(world.table)


def by(change: Change) -> Callable[[TableWorld], object]:
    """Change the table as its owner, by pyiceberg."""
    return lambda world: change(table_of(world))


# --- rows ---


def delete(world: TableWorld, *conditions: str) -> None:
    """One commit for each condition."""
    removing(world, "iceberg", lambda: [iceberg(world.table).delete(each) for each in conditions])


def last_places(world: TableWorld) -> list[str]:
    """Conditions for the newest rows."""
    places = sorted(each[-1] for each in world.messages())
    return [f"physical_offset >= {places[-20]}", f"physical_offset >= {places[-40]}"]


def delete_newest(world: TableWorld) -> None:
    delete(world, *last_places(world))


def delete_all(world: TableWorld) -> None:
    delete(world, "store != ''")


def append_foreign(world: TableWorld) -> None:
    adding(world, "iceberg", rows_of_others("iceberg", world), table_of(world).append)


def append_copies(world: TableWorld) -> None:
    rows = read("iceberg", world.table).slice(0, 9)
    adding(world, "iceberg", rows, table_of(world).append)


def foreign_append(path: Path) -> None:
    """A commit of somebody else, with no rows."""
    table = iceberg(path)
    table.append(table.scan(limit=1).to_arrow().slice(0, 0))


def rewrite(world: TableWorld) -> None:
    table_of(world).overwrite(read("iceberg", world.table))


def without_a_topic(path: Path) -> pa.Table:
    """A part of the rows, of which the last does not tell how far the store has landed."""
    rows = read("iceberg", path)
    return rows.filter([name != "topic-1" for name in rows["topic"].to_pylist()])


def overwrite_in_part(world: TableWorld) -> None:
    rest = without_a_topic(world.table)
    removing(world, "iceberg", lambda: table_of(world).overwrite(rest))


def change_values(world: TableWorld) -> None:
    rows = read("iceberg", world.table)
    some = rows.filter([name == "topic-1" for name in rows["topic"].to_pylist()])
    at = some.schema.get_field_index("flag")
    changed = some.set_column(
        at, some.schema.field(at), pa.array([77] * some.num_rows, some.schema.field(at).type)
    )
    table_of(world).overwrite(changed, "topic == 'topic-1'")


# --- history ---


def expire_all(path: Path) -> None:
    """All snapshots but the current one."""
    table = iceberg(path)
    current = table.metadata.current_snapshot_id
    gone = [e.snapshot_id for e in table.metadata.snapshots if e.snapshot_id != current]
    committed(table, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}))


def forget_metadata(path: Path) -> None:
    """Remove all metadata files but the newest."""
    table = iceberg(path)
    for each in table.metadata.metadata_log:
        Path(each.metadata_file.removeprefix("file://")).unlink()


def roll_back(path: Path, place: int) -> None:
    """To the snapshot at this place of the list of all."""
    table = iceberg(path)
    kept = table.metadata.snapshots[place].snapshot_id
    given = {"ref-name": "main", "type": "branch", "snapshot-id": kept}
    committed(table, SetSnapshotRefUpdate.model_validate(given))


def committed(table: Table, *updates: TableUpdate) -> None:
    """By the catalog itself: pyiceberg 0.10 cannot roll back or sort, and its expiry is wrong."""
    table.catalog.commit_table(table, (), updates)


def rolled_back(world: TableWorld) -> None:
    """Behind commits of two stores, of which the newest one went."""
    land_second(world)
    land_more(world)
    roll_back(world.table, -2)


def rolled_back_and_expired(world: TableWorld) -> None:
    rolled_back(world)
    expire_all(world.table)


def rolled_back_and_changed(world: TableWorld) -> None:
    rolled_back(world)
    foreign_append(world.table)
    expire_all(world.table)


def rolled_back_and_forgotten(world: TableWorld) -> None:
    rolled_back_and_changed(world)
    forget_metadata(world.table)


def expired(world: TableWorld) -> None:
    foreign_append(world.table)
    expire_all(world.table)


def deleted_and_expired(world: TableWorld, act: Callable[[TableWorld], None]) -> None:
    act(world)
    expire_all(world.table)


def deleted_and_forgotten(world: TableWorld) -> None:
    delete_newest(world)
    expired(world)
    forget_metadata(world.table)


def copied_back(world: TableWorld) -> None:
    """The rows that a rollback took, so that only the property and the rows show the position."""
    rows = read("iceberg", world.table)
    roll_back(world.table, 0)
    left = max(read("iceberg", world.table)["physical_offset"].to_pylist())
    iceberg(world.table).append(rows.filter(pc.field("physical_offset") > left))
    expire_all(world.table)
    forget_metadata(world.table)


# --- columns and partitions ---


def add_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("note", StringType(), doc="of the owner")


def drop_column(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("tags")


def drop_and_add(table: Table) -> None:
    """A column of the same name, with another id."""
    drop_column(table)
    with table.update_schema() as update:
        update.add_column("tags", StringType())


def rename_column(name: str) -> Change:
    def change(table: Table) -> None:
        with table.update_schema() as update:
            update.rename_column(name, f"{name}_before")

    return change


def name_back(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("queue_offset_before", "queue_offset")


def widen(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("flag", LongType())


def move_column(table: Table) -> None:
    with table.update_schema() as update:
        update.move_first("body")


def describe_column(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("tags", doc="of the producer")


def without_null_tags(table: Table) -> None:
    """As an owner must, before a column can be required."""
    table.delete("tags is null")


def require(name: str, *, is_required: bool = True) -> Change:
    def change(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.update_column(name, required=is_required)

    return change


def require_tags(world: TableWorld) -> None:
    removing(world, "iceberg", lambda: without_null_tags(table_of(world)))
    require("tags")(table_of(world))


def let_tags_be_null(world: TableWorld) -> None:
    require("tags", is_required=False)(table_of(world))


def add_required(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.add_column("owner", StringType(), required=True)


def drop_owner(world: TableWorld) -> None:
    with table_of(world).update_schema() as update:
        update.delete_column("owner")


def identify(table: Table) -> None:
    for name in ("store", "physical_offset"):
        require(name)(table)
    with table.update_schema() as update:
        update.set_identifier_fields("store", "physical_offset")


def partition_again(table: Table) -> None:
    """By the same keys, in another spec."""
    for transform, name in ((HourTransform(), "h"), (DayTransform(), "d")):
        with table.update_spec() as update:
            update.remove_field("store_timestamp_day" if name == "h" else "h")
            update.add_field("store_timestamp", transform, name)


def add_partition(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("queue_id", BucketTransform(4), "bucket")


def remove_bucket(world: TableWorld) -> None:
    with table_of(world).update_spec() as update:
        update.remove_field("bucket")


def remove_partition(table: Table) -> None:
    with table.update_spec() as update:
        update.remove_field("store_timestamp_day")


def add_day(world: TableWorld) -> None:
    with table_of(world).update_spec() as update:
        update.add_field("store_timestamp", DayTransform(), "store_timestamp_day")


def sort(table: Table) -> None:
    order = SortOrder(SortField(table.schema().find_field("store_timestamp").field_id), order_id=1)
    committed(
        table,
        AddSortOrderUpdate.model_validate({"sort-order": order}),
        SetDefaultSortOrderUpdate.model_validate({"sort-order-id": 1}),
    )


def branch_and_tag(table: Table) -> None:
    current = table.metadata.current_snapshot_id
    assert current is not None
    with table.manage_snapshots() as change:
        change.create_branch(current, "audit").create_tag(current, "release")


def set_properties(**properties: str) -> Change:
    return lambda table: table.transaction().set_properties(properties).commit_transaction()


def name_by_position(table: Table) -> None:
    """As Spark sets it where files without ids are added."""
    mapping = table.schema().name_mapping.model_dump_json()
    table.transaction().set_properties(
        {"schema.name-mapping.default": mapping}
    ).commit_transaction()


# --- metadata that pyiceberg does not write ---


def metadata_file(path: Path) -> Path:
    return Path(iceberg(path).metadata_location.removeprefix("file://"))


def change_metadata(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Of an Iceberg table, in a new file, as any engine does: pyiceberg writes no such one."""
    before = iceberg(path).metadata_location
    file = metadata_file(path)
    metadata = json.loads(file.read_text())
    change(metadata)
    made = file.with_name(f"x{file.name}")
    made.write_text(json.dumps(metadata))
    moved = "UPDATE iceberg_tables SET metadata_location = ? WHERE metadata_location = ?"
    with closing(sqlite3.connect(path / CATALOG_FILE)) as catalog, catalog:
        catalog.execute(moved, (f"file://{made}", before))


def make_third(metadata: dict[str, Any]) -> None:
    metadata |= {"format-version": 3, "next-row-id": 0}


def make_variant(metadata: dict[str, Any]) -> None:
    make_third(metadata)
    for each in metadata["schemas"]:
        each["fields"][-1]["type"] = "variant"


def make_unknown_transform(metadata: dict[str, Any]) -> None:
    metadata["partition-specs"][0]["fields"][0]["transform"] = "geohash[4]"


def in_metadata(change: Callable[[dict[str, Any]], None]) -> Callable[[TableWorld], None]:
    return lambda world: change_metadata(world.table, change)


# --- files and the catalog ---


def data_file(world: TableWorld) -> Path:
    return min(files("iceberg", world.table))


def lose_metadata(world: TableWorld) -> None:
    file = metadata_file(world.table)
    file.rename(world.folder / file.name)


def bring_metadata_back(world: TableWorld) -> None:
    (file,) = world.folder.glob("*.metadata.json")
    file.rename(world.table / TABLE.replace(".", "/") / "metadata" / file.name)


def drop_table(world: TableWorld) -> None:
    """From the catalog; its files stay."""
    sqlite_catalog(world.table).drop_table(TABLE)


def make_anew(world: TableWorld) -> None:
    drop_table(world)
    world.land()


def rename_table(world: TableWorld) -> None:
    """The table under the former name is another one; the renamed one stays as it is."""
    before = files("iceberg", world.table)
    sqlite_catalog(world.table).rename_table(TABLE, "lakelog.former")
    world.kept += before


def restore_catalog(world: TableWorld) -> None:
    """The catalog only; the metadata and data of newer commits are there."""
    shutil.copy(world.table / CATALOG_FILE, world.folder)
    land_more(world)
    shutil.copy(world.folder / CATALOG_FILE, world.table)


def remove_catalog(world: TableWorld) -> None:
    (world.table / CATALOG_FILE).unlink()


def break_catalog(world: TableWorld) -> None:
    shutil.copy(world.table / CATALOG_FILE, world.folder)
    (world.table / CATALOG_FILE).write_bytes(b"no database " * 20)


def mend_catalog(world: TableWorld) -> None:
    shutil.copy(world.folder / CATALOG_FILE, world.table)


def copy_without_a_file(world: TableWorld) -> None:
    copy = shutil.copytree(world.table, world.folder / "copied")
    original, world.table = world.table, copy
    name = files("iceberg", original)[0].relative_to(original)
    (copy / name).unlink()
    world.kept = [original]


def move_back(world: TableWorld) -> None:
    world.table = world.table.rename(world.folder / "t")


def mark_with_a_topic(table: Table) -> None:
    table.transaction().set_properties({"lakelog.topic": "orders"}).commit_transaction()


def unmark(world: TableWorld) -> None:
    table_of(world).transaction().remove_properties("lakelog.topic").commit_transaction()


def drop_dead_letters(world: TableWorld) -> None:
    """Those before are gone; those to come have a new table."""
    name = f"{TABLE}_dead_letters"
    world.gone |= set(keys_in(read("iceberg", world.table, name)))
    sqlite_catalog(world.table).drop_table(name)


NO_CATALOG = "it has no catalog"
OF_ICEBERG = "a notion of Iceberg"
_NO_WAY = "does not show up to where the store"
of_iceberg = partial(TableState, only=OF_ICEBERG)


ICEBERG: Final = [
    *changed(
        STATES,
        table_moved=("a place that is gone", move_back),
        table_linked_copy=("the folder is a copy or was moved", None),
    ),
    *SHARED,
    TableState(*INSIDE, other_kind_inside("delta", "lakelog", "messages")),
    of_rows("newest-rows-deleted", "deletes the newest rows", delete_newest),
    of_rows("all-rows-deleted", "deletes all rows", delete_all),
    of_rows("rows-of-others", "appends rows of no store", append_foreign),
    of_rows("rows-copied", "appends copies of rows", append_copies),
    of_rows("rows-rewritten", "writes all rows again, as a compaction does", rewrite),
    of_rows("rows-changed", "changes values", change_values),
    of_rows("overwritten-in-part", "overwrites the table with a part of it", overwrite_in_part),
    of_history("rolled-back", "rolls the table back", rolled_back),
    of_history(
        "rolled-back-and-expired", "rolls back, and expires all else", rolled_back_and_expired
    ),
    of_history(
        "rolled-back-and-changed",
        "rolls back, commits, and expires all else",
        rolled_back_and_changed,
    ),
    of_history(
        "rolled-back-and-forgotten",
        "rolls back, expires all else, and removes the older metadata",
        rolled_back_and_forgotten,
        _NO_WAY,
        remedy=by_rows,
    ),
    of_history("expired", "expires all snapshots but the newest", expired),
    *(
        of_history(
            f"{name}-and-expired",
            f"{what}, and expires all snapshots",
            partial(deleted_and_expired, act=act),
        )
        for name, what, act in (
            ("newest-rows-deleted", "deletes the newest rows", delete_newest),
            ("all-rows-deleted", "deletes all rows", delete_all),
            ("queue-deleted", "deletes a queue", lambda world: delete(world, "queue_id = 3")),
        )
    ),
    of_history(
        "deleted-and-forgotten",
        "deletes the newest rows, expires all else, and removes the older metadata",
        deleted_and_forgotten,
        _NO_WAY,
        remedy=by_position,
    ),
    of_history("rows-copied-back", "rolls back, and copies what went into it", copied_back),
    of_columns("column-added", "adds a column", by(add_column)),
    of_columns("column-described", "describes a column", by(describe_column)),
    *required(require_tags, let_tags_be_null),
    of_iceberg("column-dropped", "drops a column", by(drop_column)),
    of_iceberg("column-dropped-and-added", "drops a column and adds it again", by(drop_and_add)),
    of_iceberg("column-renamed", "renames a column", by(rename_column("tags"))),
    of_iceberg(
        "key-renamed",
        "renames a column of the key",
        by(rename_column("queue_offset")),
        "queue_offset is missing",
        remedy=lambda world: name_back(table_of(world)),
    ),
    of_iceberg("column-widened", "makes an int a long", by(widen)),
    of_iceberg("columns-reordered", "reorders the columns", by(move_column)),
    of_iceberg(
        "foreign-column-required",
        "adds a required column of its own",
        by(add_required),
        "owner must not be null",
        remedy=drop_owner,
    ),
    of_iceberg("identifier-fields", "sets identifier fields", by(identify)),
    of_iceberg("partitioned-again", "partitions by the same keys, anew", by(partition_again)),
    of_iceberg(
        "partition-added",
        "adds a partition field",
        by(add_partition),
        "it is partitioned by topic,day,bucket",
        remedy=remove_bucket,
    ),
    of_iceberg(
        "partition-removed",
        "removes a partition field",
        by(remove_partition),
        "it is partitioned by topic, not by topic,day",
        remedy=add_day,
    ),
    of_iceberg("sorted", "sets a sort order", by(sort)),
    of_iceberg("branch-and-tag", "makes a branch and a tag", by(branch_and_tag)),
    of_iceberg("name-mapping", "sets a mapping of names", by(name_by_position)),
    of_iceberg(
        "properties-set",
        "sets properties for files",
        by(set_properties(**{"write.parquet.compression-codec": "gzip", "gc.enabled": "false"})),
    ),
    of_iceberg(
        "data-path-set",
        "sets another path for data files",
        lambda world: set_properties(**{"write.data.path": f"file://{world.folder}/data"})(
            table_of(world)
        ),
    ),
    of_iceberg(
        "version-three",
        "makes the table one of version 3",
        in_metadata(make_third),
        "its format version 3",
    ),
    of_iceberg(
        "unknown-type",
        "adds a column of a type that pyiceberg does not read",
        in_metadata(make_variant),
        r"which pyiceberg cannot read \(.*variant",
    ),
    of_iceberg(
        "unknown-transform",
        "partitions by a transform that pyiceberg does not know",
        in_metadata(make_unknown_transform),
        r"it is partitioned by .*\(topic\),day, not by topic",
    ),
    *marked_and_damaged(
        by(mark_with_a_topic),
        unmark,
        data_file,
        drop_dead_letters,
    ),
    TableState(
        "newest-commit-removed",
        "removes what the newest commit wrote, as a restored backup of the metadata does",
        restore_catalog,
    ),
    TableState(
        "newest-metadata-removed",
        "removes the newest metadata file",
        lose_metadata,
        "No such file",
        remedy=bring_metadata_back,
        only="its log or manifests are files of versions, of which some are removed below",
    ),
    TableState(
        "copied-in-part",
        "copies the table without a data file, and lands in the copy",
        copy_without_a_file,
        "the copy has no",
        only="its paths are relative: a copy in part is a table that lost a file",
    ),
    *(
        TableState(name, what, act, refused, remedy=remedy, only=NO_CATALOG)
        for name, what, act, refused, remedy in (
            ("table-dropped", "drops the table", drop_table, None, None),
            ("table-made-anew", "drops the table, and makes it anew", make_anew, None, None),
            ("table-renamed", "renames the table", rename_table, None, None),
            ("catalog-removed", "removes the file of the catalog", remove_catalog, None, None),
            (
                "catalog-broken",
                "overwrites the file of the catalog",
                break_catalog,
                "not a database",
                mend_catalog,
            ),
        )
    ),
]
