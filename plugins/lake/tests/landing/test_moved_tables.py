"""Tables that others restore, roll back, replace, clean up or copy: nothing is lost or doubled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakelog_lake import Landing
from lakelog_lake.errors import PositionMissing, RetentionGap, WrongLog
from lakelog_lake.sinks.delta import _replaces
from lakelog_lake.sinks.iceberg_history import TableSnapshots, _snapshots_of
from lakelog_lake.tables import position
from lakelog_lake.tables.settings import Resume
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.delta_states import clean_up, keep_nothing
from plugins.lake.tests.landing.iceberg_states import expire_all, forget_metadata, roll_back
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.tables import (
    SMALL,
    assert_exactly,
    iceberg,
    keys_in,
    keys_of,
    land_all,
    land_one,
    make,
    position_in,
    read,
    when,
)
from plugins.lake.tests.stores import filled

slow = pytest.mark.slow
both_kinds = pytest.mark.parametrize("kind", ["iceberg", "delta"])


@pytest.fixture
def sources(source: LandingSource, tmp_path: Path) -> list[LandingSource]:
    """Two stores."""
    return [source, LandingSource(filled(tmp_path / "other", 250), "O")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the table."""
    return tmp_path / "t"


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


def assert_lands_again(sources: list[LandingSource], kind: str, path: Path) -> None:
    """What the table lost, and nothing else; so does what comes later."""
    lost = len(all_keys(sources)) - read(kind, path).num_rows
    assert lost > 0
    assert land_by_turns(sources, kind, path) == lost
    filled(sources[1].path, 20)
    assert land_by_turns(sources, kind, path) == 20
    assert_exactly(kind, path, all_keys(sources))


def foreign_append(kind: str, path: Path) -> None:
    """A commit of somebody else, with no rows of a store."""
    if kind == "delta":
        delta = DeltaTable(str(path))
        deltalake.write_deltalake(delta, delta.to_pyarrow_table().slice(0, 0), mode="append")
    else:
        table = iceberg(path)
        table.append(table.scan(limit=1).to_arrow().slice(0, 0))


def delete_queue(kind: str, path: Path) -> None:
    if kind == "delta":
        DeltaTable(str(path)).delete("queue_id = 3 AND store = 'O'")
    else:
        iceberg(path).delete("queue_id == 3 and store == 'O'")


def forget_history(kind: str, path: Path) -> None:
    """A foreign commit, and the expiry of all that was before."""
    if kind == "delta":
        clean_up(path)
    foreign_append(kind, path)
    clean_up(path) if kind == "delta" else expire_all(path)


def without_a_topic(kind: str, path: Path) -> pa.Table:
    """A part of the rows, of which the last does not tell how far the store has landed."""
    rows = read(kind, path)
    return rows.filter([name != "topic-1" for name in rows["topic"].to_pylist()])


# --- restored and rolled back ---


@slow
def test_an_iceberg_table_rolled_back_before_a_store(
    sources: list[LandingSource], path: Path
) -> None:
    land_by_turns(sources[:1], "iceberg", path)
    before = len(iceberg(path).metadata.snapshots)
    land_by_turns(sources, "iceberg", path)
    roll_back(path, before - 1)
    assert_lands_again(sources, "iceberg", path)


@slow
def test_what_a_restore_took_and_the_log_has_no_more_is_told(
    source: LandingSource, path: Path
) -> None:
    land_all(source, make("delta", path))
    DeltaTable(str(path)).restore(0)
    min((source.path / "commitlog").iterdir()).unlink()
    with pytest.raises(RetentionGap, match="deleted before they landed"):
        land_all(source, make("delta", path))


# --- without a history ---


@slow
@both_kinds
def test_a_history_that_expired(kind: str, sources: list[LandingSource], path: Path) -> None:
    """Both stores go on behind their last rows."""
    if kind == "delta":
        make("delta", path)
        keep_nothing(path, "log")
    land_by_turns(sources, kind, path)
    forget_history(kind, path)
    before = position_in(make(kind, path), "O")
    has_mark = kind == "iceberg"  # a property that says all, and that its last row confirms
    assert (before.commit != 0) is has_mark, "the history still tells"
    assert land_by_turns(sources, kind, path) == 0
    for each in sources:
        filled(each.path, 20)
        assert position_in(make(kind, path), "O") == before, "a commit says the positions of all"
        assert land_by_turns([each], kind, path) == 20
    assert_exactly(kind, path, all_keys(sources))


# --- rows that others copy, replace and delete ---


@slow
@both_kinds
def test_rows_that_somebody_copied_are_refused(
    kind: str, sources: list[LandingSource], path: Path, tmp_path: Path
) -> None:
    land_by_turns(sources, kind, tmp_path / "first")
    copied = without_a_topic(kind, tmp_path / "first")
    make(kind, path)
    if kind == "delta":
        deltalake.write_deltalake(str(path), copied, mode="append")
    else:
        iceberg(path).append(copied)
    with pytest.raises(PositionMissing, match="land in a new table"):
        land_by_turns(sources, kind, path)
    assert read(kind, path).num_rows == copied.num_rows


def test_the_deletes_of_others_are_no_hindrance(source: LandingSource, path: Path) -> None:
    sink = make("iceberg", path)
    first = land_one(source, sink)
    meanwhile = when("written", lambda: iceberg(path).delete("queue_id = 3"))
    second = land_one(source, sink, on_phase=meanwhile)
    assert second.won
    landed = keys_of(source.path, "S", second.end)
    assert_exactly("iceberg", path, [e for e in landed if e[2] != 3 or e[4] >= first.end])


@slow
@both_kinds
def test_others_may_append_compact_and_delete(
    kind: str, sources: list[LandingSource], path: Path
) -> None:
    for _ in range(3):
        for each in sources:
            filled(each.path, 20)
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


@pytest.mark.parametrize(
    ("operation", "replaces"),
    [
        ("REPLACE COLUMNS", False),
        ("SET TBLPROPERTIES", False),
        ("OPTIMIZE", False),
        ("REPLACE TABLE AS SELECT", True),
        ("CREATE OR REPLACE TABLE", True),
        ("CLONE", True),
        ("RESTORE", True),
    ],
)
def test_a_change_of_columns_replaces_no_rows(operation: str, replaces: bool) -> None:
    assert _replaces({"operation": operation}) is replaces


# --- deleted rows ---


def land_resumed(source: LandingSource, kind: str, path: Path, resume: Resume) -> int:
    """As ``lakelog dispatch --once --resume``; how many rows."""
    to = f"{kind}:{path}"
    return Landing(source.path, to, store_id=source.store, resume=resume.value).once().rows


def delete_rows(kind: str, path: Path, *conditions: str) -> None:
    """One commit for each condition."""
    for each in conditions:
        DeltaTable(str(path)).delete(each) if kind == "delta" else iceberg(path).delete(each)


LATER = ("physical_offset >= 40000 and store = 'S'", "physical_offset >= 30000 and store = 'S'")


def test_the_property_decides_behind_its_own_snapshot(
    sources: list[LandingSource], path: Path
) -> None:
    """The one snapshot left has as its parent that of the position, as Java's expiry leaves it."""
    land_by_turns(sources, "iceberg", path)
    delete_rows("iceberg", path, LATER[0])
    table = iceberg(path)
    history = TableSnapshots(table)
    parent = next(history.ancestors()).parent
    history.versions = lambda: iter([_only(table)])  # type: ignore[method-assign]  # as if older files were gone
    known = position.KnownPositions(history, "t")
    assert known.position("S") == position_in(make("iceberg", path), "S")
    assert parent is not None
    assert known.position("O") == position_in(make("iceberg", path), "O")


def _only(table: Any) -> Any:
    """The current snapshot, and no other."""
    of_version, current = _snapshots_of(table.metadata), table.metadata.current_snapshot_id
    return lambda number: of_version(number) if number == current else None


@pytest.mark.parametrize("resume", list(Resume))
@both_kinds
@pytest.mark.parametrize("gone", ["some", "all"])
def test_deleted_rows_without_any_history_stop_until_a_word(
    kind: str, source: LandingSource, path: Path, resume: Resume, gone: str
) -> None:
    if (gone, resume) == ("all", Resume.ROWS):
        pytest.skip("no row is left to go on from")
    if kind == "delta":
        make("delta", path)
        keep_nothing(path, "log")
    land_all(source, make(kind, path))
    before = position_in(make(kind, path))
    delete_rows(kind, path, *(LATER if gone == "some" else ("store = 'S'",)))
    rest = read(kind, path).num_rows
    assert rest < 300
    assert (rest > 0) is (gone == "some")
    forget_history(kind, path)
    if kind == "iceberg":
        forget_metadata(path)
    with pytest.raises(PositionMissing, match="--resume position goes on from") as found:
        land_all(source, make(kind, path))
    assert found.value.marked == before.end
    assert read(kind, path).num_rows == rest
    again = 0 if resume is Resume.POSITION else 300 - rest
    assert land_resumed(source, kind, path, resume) == again
    filled(source.path, 20)
    assert land_by_turns([source], kind, path) == 20, "the word was needed once"
    assert read(kind, path).num_rows == rest + again + 20


def test_a_word_for_one_store_makes_no_other_one_new(
    sources: list[LandingSource], path: Path
) -> None:
    make("delta", path)
    keep_nothing(path, "log")
    land_by_turns(sources, "delta", path)
    delete_rows("delta", path, LATER[1], LATER[1].replace("'S'", "'O'"))
    forget_history("delta", path)
    assert land_resumed(sources[0], "delta", path, Resume.POSITION) == 0
    with pytest.raises(PositionMissing, match="store O"):
        land_all(sources[1], make("delta", path))
    assert land_resumed(sources[1], "delta", path, Resume.POSITION) == 0
    assert land_by_turns(sources, "delta", path) == 0


def test_rows_behind_the_position_stop(source: LandingSource, path: Path) -> None:
    """A table that was restored by copying rows; the position would land them twice."""
    land_all(source, make("iceberg", path))
    rows = read("iceberg", path)
    roll_back(path, 0)
    land_one(source, make("iceberg", path))
    iceberg(path).append(rows)
    expire_all(path)
    forget_metadata(path)
    with pytest.raises(PositionMissing) as found:
        land_all(source, make("iceberg", path))
    assert "--resume position" not in str(found.value)
    with pytest.raises(PositionMissing):
        land_resumed(source, "iceberg", path, Resume.POSITION)


def test_rows_of_a_store_that_was_made_anew_are_not_taken_as_landed(
    source: LandingSource, path: Path
) -> None:
    """Records of the same sizes stand at the same places; only their store times differ."""
    make("delta", path)
    keep_nothing(path, "log", "setTransaction")
    land_all(source, make("delta", path))
    forget_history("delta", path)
    shutil.rmtree(source.path)
    filled(filled(source.path, 300), 20)
    with pytest.raises(WrongLog, match="store time"):
        land_resumed(source, "delta", path, Resume.ROWS)
    assert read("delta", path).num_rows == 300


def test_other_text_is_no_position() -> None:
    for text in ("", "{}", "[]", '{"v":2}', '{"v":1,"start":0,"end":1}', "null"):
        with pytest.raises(ValueError, match="is not a position"):
            position.from_text(text)
