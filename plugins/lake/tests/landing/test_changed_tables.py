"""Tables that others change while a dispatcher runs, and copies: rows land where they belong."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.transforms import HourTransform
from pyiceberg.types import StringType

from lakelog_lake.errors import Conflict, TableElsewhere, TableMismatch
from lakelog_lake.landing.committing import commit
from lakelog_lake.landing.dispatcher import LandingDispatcher
from lakelog_lake.landing.targets import TableSpec, Target, Targets
from lakelog_lake.maintenance.tables import expire
from lakelog_lake.maintenance.terms import RetentionTerms
from lakelog_lake.sinks.iceberg import IcebergSink, sqlite_catalog
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.iceberg_states import partition_again as partitioned_again
from plugins.lake.tests.landing.iceberg_states import roll_back
from plugins.lake.tests.landing.table_specs import land_spec
from plugins.lake.tests.landing.tables import (
    SMALL,
    TABLE,
    assert_exactly,
    files,
    iceberg,
    in_folder,
    keys_of,
    land_all,
    land_one,
    make,
    opened,
    read,
    when,
)
from plugins.lake.tests.stores import filled


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the table."""
    return tmp_path / "t"


def dispatcher(
    source: LandingSource,
    kind: str,
    path: Path,
    on_phase: Callable[[str], None],
    limits: TaskLimits = SMALL,
) -> LandingDispatcher:
    """One that goes on in its own way: with passes written ahead, and one sink."""
    targets = Targets([Target(make(kind, path))])
    return LandingDispatcher(source, targets, in_process, limits, on_phase)


def once(phase: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Act in the first phase of this name."""
    left = [act]
    return when(phase, lambda: left.pop()() if left else None)


# --- changed while a dispatcher runs ---


def drop_and_add(path: Path) -> None:
    """A column of the same name, with another id."""
    with iceberg(path).update_schema() as update:
        update.delete_column("tags")
    with iceberg(path).update_schema() as update:
        update.add_column("tags", StringType())


def partition_again(path: Path) -> None:
    """By the same keys, in another spec."""
    partitioned_again(iceberg(path))


def make_anew(path: Path) -> None:
    """Under the same name, somewhere else."""
    sqlite_catalog(path).drop_table(TABLE)
    make("iceberg", path)


@pytest.mark.parametrize("phase", ["written", "one committed"])
@pytest.mark.parametrize("change", [drop_and_add, partition_again, make_anew])
def test_files_follow_a_changed_iceberg_table(
    source: LandingSource, path: Path, change: Callable[[Path], None], phase: str
) -> None:
    """Before a commit, and while the next pass was already written."""
    with dispatcher(source, "iceberg", path, once(phase, lambda: change(path))) as lander:
        while lander.one_pass() is not None:
            pass
    table = iceberg(path)
    assert_exactly("iceberg", path, keys_of(source.path, "S"))
    tags = table.scan().to_arrow()["tags"]  # all columns: pyiceberg 0.10 needs the partition's
    tagged = table.scan(row_filter="tags is not null").to_arrow().num_rows
    assert tagged == len(tags) - tags.null_count > 0
    has_lost = change is drop_and_add and phase != "written"  # those of the first pass
    assert (tagged == 150) is not has_lost, "every second message has one"
    newest = [each.file for each in table.scan().plan_files()]
    assert table.metadata.default_spec_id in {each.spec_id for each in newest}
    days = [each.partition[1] for each in newest]
    assert all(10_000 < day < 100_000 for day in days)
    assert len(in_folder(make("iceberg", path).folder)) == len(newest) or change is make_anew


def test_other_partitions_stop_with_a_sentence(source: LandingSource, path: Path) -> None:
    def by_hour() -> None:
        with iceberg(path).update_spec() as update:
            update.remove_field("store_timestamp_day")
            update.add_field("store_timestamp", HourTransform(), "store_timestamp_hour")

    with (
        pytest.raises(TableMismatch, match="it is partitioned by topic,hour, not by topic,day"),
        dispatcher(source, "iceberg", path, once("written", by_hour)) as lander,
    ):
        lander.one_pass()
    assert read("iceberg", path).num_rows == 0
    assert in_folder(iceberg(path).location().removeprefix("file://")) == set()


def test_the_catalog_compares_schema_and_spec(source: LandingSource, path: Path) -> None:
    """A change between the last look and the commit: the snapshot is still the same."""
    sink: Any = make("iceberg", path)
    head = sink.head("S")
    drop_and_add(path)
    with pytest.raises(Conflict, match="schema id"):
        sink.commit(head, "S", [], Position(0, 10))


def test_files_follow_a_delta_table_that_was_made_anew(source: LandingSource, path: Path) -> None:
    def anew() -> None:
        shutil.rmtree(path)
        make("delta", path)

    targets = Targets([Target(make("delta", path))])
    lander = LandingDispatcher(
        source, targets, in_process, SMALL, once("committed", anew), is_last=lambda: True
    )
    with lander:
        while lander.one_pass() is not None:
            pass
    assert_exactly("delta", path, keys_of(source.path, "S"))


def test_a_column_that_somebody_adds_to_a_delta_table_is_no_hindrance(
    source: LandingSource, path: Path
) -> None:
    def add() -> None:
        rows = DeltaTable(str(path)).to_pyarrow_table().slice(0, 0)
        more = rows.append_column("note", pa.array([], pa.string()))
        write_deltalake(str(path), more, mode="append", schema_mode="merge")

    with dispatcher(source, "delta", path, once("written", add)) as lander:
        while lander.one_pass() is not None:
            pass
    assert_exactly("delta", path, keys_of(source.path, "S"))
    assert len(in_folder(path / "data")) == len(files("delta", path))


# --- lost answers ---


def test_files_in_a_version_that_was_rolled_back_stay(source: LandingSource, path: Path) -> None:
    """They are in a snapshot that the table still has."""
    first, other = make("iceberg", path), make("iceberg", path)
    land_one(source, first)
    began = first.head("S")
    land_one(source, first)
    second = iceberg(path).metadata.current_snapshot_id
    roll_back(path, 0)
    land_one(source, other)
    table = iceberg(path)
    listed = [each.file for each in table.scan(snapshot_id=second).plan_files()]
    position = first.head("S").position
    assert position is not None
    facts: Any = [_Facts(each.file_path.removeprefix("file://")) for each in listed]
    assert not commit(first, began, "S", facts, Position(0, 1))
    assert table.scan(snapshot_id=second).to_arrow().num_rows > 0


class _Facts:
    """A file of a commit that is refused before anything but its path is needed."""

    files = None

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> Any:
        raise OSError("the answer is lost")


# --- copies ---


def contents(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("goes_on", [False, True])
def test_the_copy_of_a_warehouse_is_one_of_its_own(
    source: LandingSource, path: Path, tmp_path: Path, goes_on: bool
) -> None:
    """Rows land in the copy; the original stays as it is, or goes on by itself."""
    copy = tmp_path / "copy"
    land_all(source, make("iceberg", path))
    partition_again(path)
    shutil.copytree(path, copy)
    if goes_on:  # so far that the metadata file is gone that the copy's catalog has
        iceberg(path).transaction().set_properties(
            {"write.metadata.previous-versions-max": "1"}
        ).commit_transaction()
        for number in range(3):
            filled(source.path, 1 + number)
            land_all(source, make("iceberg", path))
    there, rows = contents(path), keys_of(source.path, "S")[:]
    filled(source.path, 20)
    sink = make("iceberg", copy)
    assert land_all(source, sink) != []
    assert land_all(source, make("iceberg", copy)) == []
    assert_exactly("iceberg", copy, keys_of(source.path, "S"))
    assert contents(path) == there
    assert all(each.is_relative_to(copy) for each in files("iceberg", copy))
    table = iceberg(copy)
    for each in table.metadata.snapshots:
        assert table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows > 0
    assert str(path) + "/" not in Path(table.metadata_location.removeprefix("file://")).read_text()
    shutil.rmtree(copy)
    assert_exactly("iceberg", path, rows)


def test_the_copy_of_a_warehouse_of_a_configured_catalog(
    source: LandingSource, path: Path, tmp_path: Path
) -> None:
    """By its name in pyiceberg's configuration: ``catalog:NAME``."""
    land_all(source, make("iceberg", path))
    shutil.copytree(path, tmp_path / "copy")
    there = contents(path)
    filled(source.path, 20)
    copied = sqlite_catalog(tmp_path / "copy")
    sink = IcebergSink(SqlCatalog("lake", **copied.properties), TABLE)
    sink.prepare()
    assert sum(each.rows for each in land_all(source, sink)) == 20
    assert contents(path) == there


def test_a_copied_warehouse_with_a_table_per_topic(
    source: LandingSource, path: Path, tmp_path: Path
) -> None:
    spec = TableSpec(f"iceberg:{path}", "lake.of_{topic}")
    land_spec(source, spec)
    shutil.copytree(path, tmp_path / "copy")
    there = contents(path)
    filled(source.path, 20)
    copied = TableSpec(f"iceberg:{tmp_path / 'copy'}", "lake.of_{topic}")
    assert sum(each.rows for each in land_spec(source, copied)) == 20
    assert contents(path) == there


def test_the_copy_of_a_warehouse_is_refused_to_others(
    source: LandingSource, path: Path, tmp_path: Path
) -> None:
    """To those that read and clean up: only a dispatch makes it one of its own."""
    land_all(source, make("iceberg", path))
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    there, to = {**contents(path), **contents(copy)}, f"iceberg:{copy}"
    for act in (
        lambda: expire(to, None, RetentionTerms(0, 1)),
        lambda: opened(to).position("S"),
    ):
        with pytest.raises(TableElsewhere, match="the folder is a copy or was moved"):
            act()
    next(iter(in_folder(copy))).unlink()
    with pytest.raises(TableElsewhere, match="the copy has no"):
        make("iceberg", copy)
    lost = {name for name in there if not name.exists()}
    assert len(lost) == 1
    assert contents(path).items() <= there.items()
    pointers = [iceberg(path).metadata_location] * 2
    assert pointers == [pointer_in(each) for each in (path, copy)]


def pointer_in(warehouse: Path) -> str:
    with closing(sqlite3.connect(warehouse / "catalog.db")) as db:
        return str(db.execute("SELECT metadata_location FROM iceberg_tables").fetchone()[0])


def test_a_copied_table_with_delete_files_is_refused(
    source: LandingSource, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_all(source, make("iceberg", path))
    shutil.copytree(path, tmp_path / "copy")
    deletes = property(lambda _: ManifestContent.DELETES)
    monkeypatch.setattr(ManifestFile, "content", deletes)
    with pytest.raises(TableElsewhere, match="it has delete files"):
        make("iceberg", tmp_path / "copy")
