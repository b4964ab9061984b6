"""Every message is a row, once, in each kind of table, whatever goes wrong between and beside."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import Message
from lakelog_lake.errors import Conflict, TableMismatch, Unreachable, WrongLog
from lakelog_lake.landing.dispatcher import LandingSource, land
from lakelog_lake.landing.targets import sink_for
from lakelog_lake.log.selection import Chosen
from lakelog_lake.tables.fields import TableShape
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.engines import in_process, processes
from lakelog_lake.tasks.task import Written, write
from lakelog_testing.copies import copy_store
from plugins.lake.tests.landing.tables import (
    SMALL,
    assert_exactly,
    commits,
    keys_of,
    land_all,
    make,
    read,
)
from plugins.lake.tests.stores import expected_rows, filled, open_small


def test_rows_are_the_messages(kind: str, store_path: Path, tmp_path: Path) -> None:
    land_all(LandingSource(store_path, "S"), make(kind, tmp_path / "t"))
    with lakelog.open(store_path, mode="read") as store:
        expected = expected_rows(store.scan(), "S")
    found = read(kind, tmp_path / "t")
    rows = found.drop_columns(["day"] if "day" in found.column_names else []).to_pylist()
    for row in rows:
        row["properties"] = dict(row["properties"])
    by_place = sorted(rows, key=lambda row: int(row["physical_offset"]))
    assert [{name: row[name] for name in expected[0]} for row in by_place] == expected


def test_each_pass_goes_on_where_the_table_says(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    passes = land_all(LandingSource(store_path, "S"), make(kind, tmp_path / "t"))
    assert len(passes) > 3
    assert all(a.end == b.start for a, b in itertools.pairwise(passes))
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, "S"))
    assert commits(kind, tmp_path / "t") == len(passes)


def test_what_comes_later_lands_later(kind: str, store_path: Path, tmp_path: Path) -> None:
    source = LandingSource(store_path, "S")
    land_all(source, make(kind, tmp_path / "t"))
    filled(store_path, 20)
    assert sum(each.rows for each in land_all(source, make(kind, tmp_path / "t"))) == 20
    assert land_all(source, make(kind, tmp_path / "t")) == []
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, "S"))


def test_the_position_says_where_queues_go_on(kind: str, store_path: Path, tmp_path: Path) -> None:
    sink = make(kind, tmp_path / "t")
    land_all(LandingSource(store_path, "S"), sink)
    position = sink.head("S").position
    assert position is not None
    ends: dict[str, dict[int, int]] = {}
    for _, topic, queue_id, offset, _ in keys_of(store_path, "S"):
        queues = ends.setdefault(topic, {})
        queues[queue_id] = max(queues.get(queue_id, 0), offset + 1)
    assert position.next_offsets == ends


def test_two_stores_land_side_by_side(kind: str, store_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    filled(other, 120)
    sources = [LandingSource(store_path, "S"), LandingSource(other, "O")]
    sink = make(kind, tmp_path / "t")
    while any([land(each, sink, in_process, SMALL) for each in sources]):  # noqa: C419  # a generator would stop at the first that lands
        pass
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, "S") + keys_of(other, "O"))


def test_another_store_under_the_same_identity_is_refused(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with open_small(other) as store:
        store.put_batch([Message("t", b"x" * 400, queue_id=0) for _ in range(400)])
    sink = make(kind, tmp_path / "t")
    land_all(LandingSource(store_path, "S"), sink)
    with pytest.raises(WrongLog, match="restored"):
        land(LandingSource(other, "S"), sink, in_process, SMALL)
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, "S"))


def test_a_store_restored_from_an_older_copy_is_refused(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    copy_store(store_path, tmp_path / "backup")
    filled(store_path, 50)
    source, sink = LandingSource(store_path, "S"), make(kind, tmp_path / "t")
    land_all(source, sink)
    expected = keys_of(store_path, "S")
    shutil.rmtree(store_path)
    copy_store(tmp_path / "backup", store_path)
    with pytest.raises(WrongLog, match="no whole record is there"):
        land(source, sink, in_process, SMALL)
    with open_small(store_path) as store:  # it grows past the place, with other messages
        store.put_batch([Message("t", bytes([n]) * 300, queue_id=0) for n in range(200)])
    with pytest.raises(WrongLog):
        land(source, sink, in_process, SMALL)
    assert_exactly(kind, tmp_path / "t", expected)


def test_a_second_dispatcher_loses_and_leaves_nothing(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    source, first, second = (
        LandingSource(store_path, "S"),
        make(kind, tmp_path / "t"),
        make(kind, tmp_path / "t"),
    )

    def meanwhile(phase: str) -> None:
        if phase == "written":
            winner = land(source, first, in_process, SMALL)
            assert winner is not None
            assert winner.won

    landed = land(source, second, in_process, SMALL, meanwhile)
    assert landed is not None
    assert not landed.won
    assert commits(kind, tmp_path / "t") == 1
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, "S", landed.end))
    in_folder = {path for path in Path(str(first.folder)).rglob("*.parquet*") if path.is_file()}
    from plugins.lake.tests.landing.tables import files

    assert in_folder == set(files(kind, tmp_path / "t"))


def test_a_commit_beside_another_store_is_tried_again(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    filled(other, 30)
    mine, theirs = make(kind, tmp_path / "t"), make(kind, tmp_path / "t")

    def meanwhile(phase: str) -> None:
        if phase == "written":
            land(LandingSource(other, "O"), theirs, in_process, SMALL)

    landed = land(LandingSource(store_path, "S"), mine, in_process, SMALL, meanwhile)
    assert landed is not None
    assert landed.won
    expected = keys_of(store_path, "S", landed.end) + keys_of(other, "O")
    assert_exactly(kind, tmp_path / "t", expected)


def test_an_old_version_is_refused_as_a_conflict(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    """The sink itself, with nothing around it that looks at positions."""
    sink = make(kind, tmp_path / "t")
    old = sink.head("S")
    land(LandingSource(store_path, "S"), sink, in_process, SMALL)
    with pytest.raises(Conflict):
        sink.commit(old, "S", [], Position(0, 10))
    assert commits(kind, tmp_path / "t") == 1


class _Lying:
    """A table whose commits report an error, after they were done or instead."""

    def __init__(self, inner: Any, *, does: bool, times: int = 1) -> None:
        self._inner, self._does, self._times = inner, does, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, *given: Any) -> None:
        if self._times == 0:
            self._inner.commit(*given)
            return
        self._times -= 1
        if self._does:
            self._inner.commit(*given)
        raise OSError("the answer was lost")


@pytest.mark.parametrize("does", [True, False])
def test_an_error_of_a_commit_says_nothing_of_what_it_did(
    kind: str, store_path: Path, tmp_path: Path, does: bool
) -> None:
    sink = _Lying(make(kind, tmp_path / "t"), does=does)
    landed = land(LandingSource(store_path, "S"), sink, in_process, SMALL)
    assert landed is not None
    assert landed.won
    assert commits(kind, tmp_path / "t") == 1
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, "S", landed.end))


def test_a_table_that_takes_nothing_is_given_up(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    sink = _Lying(make("parquet", tmp_path / "t"), does=False, times=100)
    with pytest.raises(Unreachable, match="the answer was lost"):
        land(LandingSource(store_path, "S"), sink, in_process, SMALL)
    assert read("parquet", tmp_path / "t").num_rows == 0


def test_a_task_that_fails_lands_nothing(kind: str, store_path: Path, tmp_path: Path) -> None:
    def fails(tasks: Sequence[Any]) -> Sequence[Written]:
        write(tasks[0])
        raise OSError(28, "No space left on device")

    sink = make(kind, tmp_path / "t")
    with pytest.raises(OSError, match="No space"):
        land(LandingSource(store_path, "S"), sink, fails, SMALL)
    assert sink.head("S").position is None
    land_all(LandingSource(store_path, "S"), sink)
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, "S"))


def test_processes_write_the_same(store_path: Path, tmp_path: Path) -> None:
    sink = make("parquet", tmp_path / "t")
    with processes(2) as engine:
        while land(LandingSource(store_path, "S"), sink, engine, SMALL):
            pass
    assert_exactly("parquet", tmp_path / "t", keys_of(store_path, "S"))


def test_damage_ends_a_pass_or_is_passed_over(kind: str, store_path: Path, tmp_path: Path) -> None:
    with lakelog.open(store_path, mode="read") as store:
        victim = list(store.scan())[40]
    segment = store_path / "commitlog" / f"{victim.physical_offset // 16384 * 16384:020d}"
    data = bytearray(segment.read_bytes())
    data[victim.physical_offset % 16384 + 60] ^= 0xFF  # inside of its hosts or body
    data[victim.physical_offset % 16384 + 4] ^= 0xFF
    segment.write_bytes(data)
    sink = make(kind, tmp_path / "t")
    from lakelog_lake.errors import CorruptLog

    with pytest.raises(CorruptLog, match=str(victim.physical_offset)):
        land_all(LandingSource(store_path, "S"), sink)
    passes = land_all(LandingSource(store_path, "S", skip_damage=True), sink)
    assert sum(each.damaged for each in passes) == 1
    expected = keys_of(store_path, "S")
    assert len(expected) == 299
    assert_exactly(kind, tmp_path / "t", expected)


def test_a_range_without_rows_moves_the_position(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    sink = make(kind, tmp_path / "t")
    chosen = Chosen(topics=frozenset({"none such"}))
    passes = land_all(LandingSource(store_path, "S", chosen=chosen), sink)
    assert sum(each.rows for each in passes) == 0
    position = sink.head("S").position
    assert position is not None
    assert position.end == passes[-1].end
    assert position.last is not None


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "notes.txt").write_text("mine")
    with pytest.raises(TableMismatch, match="other files"):
        make("parquet", tmp_path / "t")


@pytest.mark.parametrize("partition", [("topic", "day"), ("store",)])
def test_a_filter_on_a_column_without_bounds_finds_its_rows(
    store_path: Path, tmp_path: Path, partition: tuple[str, ...]
) -> None:
    import deltalake

    sink = sink_for(f"delta:{tmp_path / 't'}", shape=TableShape(partition=partition))
    sink.prepare()
    land_all(LandingSource(store_path, "S"), sink)
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    rows = len(keys_of(store_path, "S"))
    for column in ("store", "message_id", "born_host"):
        found = table.to_pyarrow_table(filters=[(column, "!=", "?")])
        assert found.num_rows == rows, column


def test_a_delta_table_of_something_else_is_refused(tmp_path: Path) -> None:
    import deltalake
    import pyarrow as pa

    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"a": [1]}))
    with pytest.raises(TableMismatch, match="other columns"):
        make("delta", tmp_path / "t")


def test_an_iceberg_table_of_something_else_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    from lakelog_lake.sinks.iceberg import sqlite_catalog

    catalog = sqlite_catalog(tmp_path / "t")
    catalog.create_namespace("lakelog")
    catalog.create_table("lakelog.messages", pa.schema([("a", pa.int64())]))
    with pytest.raises(TableMismatch, match="other columns"):
        make("iceberg", tmp_path / "t")
