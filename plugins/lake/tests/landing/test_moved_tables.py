"""Tables that others restore, roll back, replace, clean up or copy: nothing is lost or doubled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakelog_lake.errors import PositionMissing, RetentionGap
from lakelog_lake.landing.dispatcher import LandingSource, land
from lakelog_lake.sinks.history import KnownPositions
from lakelog_lake.sinks.iceberg import sqlite_catalog
from lakelog_lake.tables import position
from lakelog_lake.tables.position import Position, key
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.ranges import TaskLimits
from plugins.lake.tests.landing.tables import (
    SMALL,
    TABLE,
    assert_exactly,
    keys_in,
    keys_of,
    land_all,
    make,
    read,
)
from plugins.lake.tests.stores import filled

slow = pytest.mark.slow


@pytest.fixture
def sources(store_path: Path, tmp_path: Path) -> list[LandingSource]:
    """Two stores."""
    return [LandingSource(store_path, "S"), LandingSource(filled(tmp_path / "other", 250), "O")]


def land_by_turns(sources: list[LandingSource], kind: str, path: Path) -> int:
    """Land all in one table, each by a sink of its own, as after a restart; how many rows."""
    rows = 0
    while True:
        passes = [land(each, make(kind, path), in_process, SMALL) for each in sources]
        rows += sum(each.rows for each in passes if each is not None)
        if passes == [None] * len(sources):
            return rows


def all_keys(sources: list[LandingSource]) -> list[tuple[Any, ...]]:
    return [row for each in sources for row in keys_of(each.path, each.store)]


def add(source: LandingSource, count: int = 20) -> None:
    filled(source.path, count)


def foreign_append(kind: str, path: Path) -> None:
    """A commit of somebody else, with no rows of a store."""
    if kind == "delta":
        delta = DeltaTable(str(path))
        deltalake.write_deltalake(delta, delta.to_pyarrow_table().slice(0, 0), mode="append")
    else:
        table = sqlite_catalog(path).load_table(TABLE)
        table.append(table.scan(limit=1).to_arrow().slice(0, 0))


def delete_queue(kind: str, path: Path) -> None:
    if kind == "delta":
        DeltaTable(str(path)).delete("queue_id = 3 AND store = 'O'")
    else:
        sqlite_catalog(path).load_table(TABLE).delete("queue_id == 3 and store == 'O'")


def forget_history(kind: str, path: Path) -> None:
    """A foreign commit, and the expiry of all that was before."""
    if kind == "delta":
        clean_up(path)
        foreign_append(kind, path)
        clean_up(path)
        return
    foreign_append(kind, path)
    expire_all(path)


def expire_all(path: Path) -> None:
    """All snapshots but the current one."""
    table = sqlite_catalog(path).load_table(TABLE)
    current = table.metadata.current_snapshot_id
    gone = [e.snapshot_id for e in table.metadata.snapshots if e.snapshot_id != current]
    table.maintenance.expire_snapshots().by_ids(gone).commit()


def without_a_topic(kind: str, path: Path) -> pa.Table:
    """A part of the rows, of which the last does not tell how far the store has landed."""
    rows = read(kind, path)
    return rows.filter([name != "topic-1" for name in rows["topic"].to_pylist()])


def set_retention(path: Path, **settings: str) -> None:
    """By the table's own settings, as an owner would."""
    named = {f"delta.{name}": value for name, value in settings.items()}
    DeltaTable(str(path)).alter.set_table_properties(named, raise_if_not_exists=False)


def clean_up(path: Path) -> None:
    DeltaTable(str(path)).create_checkpoint()
    DeltaTable(str(path)).cleanup_metadata()


@pytest.mark.parametrize("back", [4, *(pytest.param(each, marks=slow) for each in (1, 7, None))])
def test_a_restored_delta_table(
    sources: list[LandingSource], tmp_path: Path, back: int | None
) -> None:
    """By so many versions, or to its beginning."""
    path = tmp_path / "t"
    land_by_turns(sources, "delta", path)
    table = DeltaTable(str(path))
    table.restore(0 if back is None else table.version() - back)
    assert (read("delta", path).num_rows == 0) is (back is None)
    lost = len(all_keys(sources)) - read("delta", path).num_rows
    assert lost > 0
    if back is not None:
        foreign_append("delta", path)
    assert land_by_turns(sources, "delta", path) == lost
    add(sources[1])
    land_by_turns(sources, "delta", path)
    assert_exactly("delta", path, all_keys(sources))


@slow
@pytest.mark.parametrize("is_restored", [False, True])
def test_delta_identifiers_that_vanish(
    sources: list[LandingSource], tmp_path: Path, is_restored: bool
) -> None:
    path = tmp_path / "t"
    make("delta", path)
    set_retention(path, setTransactionRetentionDuration="interval 0 seconds")
    land_by_turns(sources, "delta", path)
    DeltaTable(str(path)).create_checkpoint()
    assert DeltaTable(str(path)).transaction_version("lakelog/S") is None
    if is_restored:
        DeltaTable(str(path)).restore(4)
        DeltaTable(str(path)).create_checkpoint()
    lost = len(all_keys(sources)) - read("delta", path).num_rows
    assert land_by_turns(sources, "delta", path) == lost
    add(sources[0])
    land_by_turns(sources, "delta", path)
    assert_exactly("delta", path, all_keys(sources))


def test_delta_without_identifiers_and_history_is_refused(
    sources: list[LandingSource], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    make("delta", path)
    nothing = "interval 0 seconds"
    set_retention(path, setTransactionRetentionDuration=nothing, logRetentionDuration=nothing)
    land_by_turns(sources, "delta", path)
    forget_history("delta", path)
    assert not any("userMetadata" in each for each in DeltaTable(str(path)).history())
    with pytest.raises(PositionMissing, match="but no position for it"):
        land_by_turns(sources, "delta", path)
    assert_exactly("delta", path, all_keys(sources))


@slow
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_history_that_expired(kind: str, sources: list[LandingSource], tmp_path: Path) -> None:
    """Both stores go on behind their last rows."""
    path = tmp_path / "t"
    make(kind, path)
    if kind == "delta":
        set_retention(path, logRetentionDuration="interval 0 seconds")
    land_by_turns(sources, kind, path)
    forget_history(kind, path)
    before = make(kind, path).head("O").position
    assert before is not None
    has_mark = kind == "iceberg"  # a property that says all, and that its last row confirms
    assert (before.commit != 0) is has_mark, "the history still tells"
    assert land_by_turns(sources, kind, path) == 0
    add(sources[0])
    assert land_by_turns(sources, kind, path) == 20
    again = make(kind, path).head("O").position
    assert again == before, "the commit of one store says the positions of all"
    add(sources[1])
    land_by_turns(sources, kind, path)
    assert_exactly(kind, path, all_keys(sources))


@pytest.mark.parametrize("back", [2, pytest.param(5, marks=slow)])
def test_an_iceberg_table_rolled_back_and_expired(
    sources: list[LandingSource], tmp_path: Path, back: int
) -> None:
    """One snapshot is left, which is of one store; the properties of both are ahead of it."""
    path = tmp_path / "t"
    land_by_turns(sources, "iceberg", path)
    table = sqlite_catalog(path).load_table(TABLE)
    kept = table.metadata.snapshots[-1 - back].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(kept).commit()
    expire_all(path)
    lost = len(all_keys(sources)) - read("iceberg", path).num_rows
    assert lost > 0
    assert land_by_turns(sources, "iceberg", path) == lost
    assert_exactly("iceberg", path, all_keys(sources))


def test_the_position_outlives_the_snapshots(sources: list[LandingSource], tmp_path: Path) -> None:
    path = tmp_path / "t"
    sink = make("iceberg", path)
    land_all(sources[0], sink)
    before = sink.head("S").position
    land_all(sources[1], sink)
    expire_all(path)
    assert len(sqlite_catalog(path).load_table(TABLE).metadata.snapshots) == 1
    assert sink.head("S").position == before
    assert land_all(sources[0], sink) == []
    assert_exactly("iceberg", path, all_keys(sources))


def test_a_table_that_was_rolled_back_lands_again_what_it_lost(
    source: LandingSource, tmp_path: Path
) -> None:
    sink = make("iceberg", tmp_path)
    land_all(source, sink)
    table = sqlite_catalog(tmp_path).load_table(TABLE)
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[1].snapshot_id).commit()
    assert read("iceberg", tmp_path).num_rows < 300
    land_all(source, sink)
    assert_exactly("iceberg", tmp_path, keys_of(source.path, "S"))


def test_the_deletes_of_others_are_no_hindrance(source: LandingSource, tmp_path: Path) -> None:
    sink = make("iceberg", tmp_path)

    def meanwhile(phase: str) -> None:
        if phase == "written":
            sqlite_catalog(tmp_path).load_table(TABLE).delete("queue_id = 3")

    first = land(source, sink, in_process, SMALL)
    second = land(source, sink, in_process, SMALL, meanwhile)
    assert first is not None
    assert second is not None
    assert second.won
    expected = [
        each
        for each in keys_of(source.path, "S", second.end)
        if each[2] != 3 or each[4] >= first.end
    ]
    assert_exactly("iceberg", tmp_path, expected)


def test_an_iceberg_table_rolled_back_that_lost_its_history(
    source: LandingSource, tmp_path: Path
) -> None:
    """Only its rows tell how far the store has landed; the property is ahead of them."""
    land_all(source, make("iceberg", tmp_path))
    table = sqlite_catalog(tmp_path).load_table(TABLE)
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[1].snapshot_id).commit()
    forget_history("iceberg", tmp_path)
    land_all(source, make("iceberg", tmp_path))
    assert_exactly("iceberg", tmp_path, keys_of(source.path, "S"))


@slow
def test_an_iceberg_table_rolled_back_before_a_store(
    sources: list[LandingSource], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    land_by_turns(sources[:1], "iceberg", path)
    first = sqlite_catalog(path).load_table(TABLE).metadata.current_snapshot_id
    assert first is not None
    land_by_turns(sources, "iceberg", path)
    table = sqlite_catalog(path).load_table(TABLE)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert land_by_turns(sources, "iceberg", path) == 250
    assert_exactly("iceberg", path, all_keys(sources))


@slow
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_rows_that_somebody_copied_are_refused(
    kind: str, sources: list[LandingSource], tmp_path: Path
) -> None:
    land_by_turns(sources, kind, tmp_path / "first")
    copied = without_a_topic(kind, tmp_path / "first")
    path = tmp_path / "copy"
    make(kind, path)
    if kind == "delta":
        deltalake.write_deltalake(str(path), copied, mode="append")
    else:
        sqlite_catalog(path).load_table(TABLE).append(copied)
    with pytest.raises(PositionMissing, match="land in a new table"):
        land_by_turns(sources, kind, path)
    assert read(kind, path).num_rows == copied.num_rows


def test_an_overwritten_delta_table_is_refused(source: LandingSource, tmp_path: Path) -> None:
    land_all(source, make("delta", tmp_path), TaskLimits())
    rows = without_a_topic("delta", tmp_path)
    deltalake.write_deltalake(str(tmp_path), rows, mode="overwrite")
    with pytest.raises(PositionMissing):
        land_all(source, make("delta", tmp_path))


@slow
def test_a_delta_table_overwritten_in_part_is_refused(
    sources: list[LandingSource], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    land_by_turns(sources, "delta", path)
    deltalake.write_deltalake(str(path), without_a_topic("delta", path), mode="overwrite")
    with pytest.raises(PositionMissing):
        land_by_turns(sources, "delta", path)
    DeltaTable(str(path)).restore(DeltaTable(str(path)).version() - 1)
    assert land_by_turns(sources, "delta", path) == 0
    assert_exactly("delta", path, all_keys(sources))


@slow
@pytest.mark.parametrize("is_expired", [False, True])
def test_an_iceberg_table_overwritten_in_part_is_refused(
    sources: list[LandingSource], tmp_path: Path, is_expired: bool
) -> None:
    path = tmp_path / "t"
    land_by_turns(sources, "iceberg", path)
    table = sqlite_catalog(path).load_table(TABLE)
    rest = without_a_topic("iceberg", path)
    with table.transaction() as transaction:  # as Spark replaces a table
        transaction.delete("store != ''")
    sqlite_catalog(path).load_table(TABLE).append(rest)
    if is_expired:
        expire_all(path)
        with pytest.raises(PositionMissing):
            land_by_turns(sources, "iceberg", path)
    else:
        assert land_by_turns(sources, "iceberg", path) == 0


@slow
def test_what_a_restore_took_and_the_log_has_no_more_is_told(
    tmp_path: Path, store_path: Path
) -> None:
    source, path = LandingSource(store_path, "S"), tmp_path / "t"
    land_all(source, make("delta", path))
    DeltaTable(str(path)).restore(0)
    sorted((store_path / "commitlog").iterdir())[0].unlink()
    with pytest.raises(RetentionGap, match="deleted before they landed"):
        land_all(source, make("delta", path))


@slow
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_others_may_append_compact_and_delete(
    kind: str, sources: list[LandingSource], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    for _ in range(3):
        for each in sources:
            add(each)
            land(each, make(kind, path), in_process, SMALL)
        foreign_append(kind, path)
        if kind == "delta":
            DeltaTable(str(path)).optimize.compact()
        delete_queue(kind, path)
    land_by_turns(sources, kind, path)
    delete_queue(kind, path)
    assert land_by_turns(sources, kind, path) == 0
    expected = [row for row in all_keys(sources) if row[0] == "S" or row[2] != 3]
    assert keys_in(read(kind, path)) == sorted(expected)


def test_of_commits_of_an_earlier_version_the_newest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them says the position of one store."""
    sink = make("delta", tmp_path)
    first, second, other = Position(0, 10), Position(10, 20), Position(0, 30)
    with monkeypatch.context() as before:
        before.setattr(position, "_VERSION", 1)
        before.setattr(KnownPositions, "texts", lambda _: {})
        for store, each in (("S", first), ("S", second), ("O", other)):
            sink.commit(sink.head(store), store, [], each)
    again = make("delta", tmp_path)
    assert (again.head("S").position, again.head("O").position) == (second, other)


@slow
@pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet"])
def test_tables_of_earlier_versions_go_on(
    kind: str, sources: list[LandingSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their commits say the position of one store."""
    path = tmp_path / "t"
    with monkeypatch.context() as before:
        before.setattr(position, "_VERSION", 1)
        before.setattr(KnownPositions, "texts", lambda _: {})
        land_all(sources[1], make(kind, path))
        land_all(sources[0], make(kind, path))
    if kind == "delta":
        as_before(path)
    for each in sources:
        add(each)
    assert land_by_turns(sources, kind, path) == 40
    assert_exactly(kind, path, all_keys(sources))


def as_before(path: Path) -> None:
    """As earlier versions wrote ``userMetadata``."""
    for log in (path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for each in actions:
            said = each.get("commitInfo", {}).get("userMetadata")
            if said is not None:
                (store, text), *_ = position.texts_in(json.loads(said)).items()
                each["commitInfo"]["userMetadata"] = f"{key(store)}={text}"
        log.write_text("".join(json.dumps(each) + "\n" for each in actions))
