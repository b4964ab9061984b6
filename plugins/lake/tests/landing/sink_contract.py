"""The contract of sinks: every message is a row, once, whatever goes wrong between and beside.

An implementer gives the fixture ``table``; ``test_landing.py`` has those of this package.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog
from lakelog import Message
from lakelog_lake.errors import Conflict, CorruptLog, WrongLog
from lakelog_lake.landing import committing
from lakelog_lake.log.wanted import Chosen
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits, Written
from lakelog_testing.samples import copy_store
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.tables import (
    SMALL,
    SinkTable,
    keys_of,
    land_all,
    land_one,
    position_in,
    when,
)
from plugins.lake.tests.stores import damaged, expected_rows, filled, open_small

of_any_table = pytest.mark.sample(1)
"""What the dispatcher does by itself: one table shows it, with the others the test is slow."""


class LyingSink:
    """A table whose commits report an error, after they were done or instead."""

    def __init__(self, inner: Any, *, does: bool, times: int = 1) -> None:
        self._inner, self._does, self._times = inner, does, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, *given: Any) -> None:
        if self._does or not self._times:
            self._inner.commit(*given)
        if self._times:
            self._times -= 1
            raise OSError("the answer was lost")


class LateSink(LyingSink):
    """A table whose first commit is done, but reports an error when another one has followed."""

    def __init__(self, inner: Any, then: Callable[[], object]) -> None:
        super().__init__(inner, does=True)
        self._then = then

    def commit(self, *given: Any) -> None:
        try:
            super().commit(*given)
        except OSError:
            self._then()
            raise


class SinkContract:
    """The fixtures ``source`` and ``store_path`` are a store of 300 messages."""

    def test_rows_are_the_messages(self, table: SinkTable, source: LandingSource) -> None:
        """Each pass goes on where the table says; what comes later lands later."""
        passes = land_all(source, table.made())
        assert len(passes) > 2
        assert all(a.end == b.start for a, b in itertools.pairwise(passes))
        assert table.commits() == len(passes)
        with lakelog.open(source.path, mode="read") as store:
            expected = expected_rows(store.scan(), "S")
        rows = table.read().select(list(expected[0])).to_pylist()
        for row in rows:
            row["properties"] = dict(row["properties"])
        assert sorted(rows, key=lambda row: int(row["physical_offset"])) == expected
        filled(source.path, 20)
        assert sum(each.rows for each in land_all(source, table.made())) == 20
        assert land_all(source, table.made()) == []
        table.assert_exactly(keys_of(source.path, "S"))

    def test_the_position_says_where_queues_go_on(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        sink = table.made()
        land_all(source, sink)
        ends: dict[str, dict[int, int]] = {}
        for _, topic, queue_id, offset, _ in keys_of(source.path, "S"):
            queues = ends.setdefault(topic, {})
            queues[queue_id] = max(queues.get(queue_id, 0), offset + 1)
        assert position_in(sink).next_offsets == ends

    def test_the_position_has_the_last_record_of_the_pass(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        sink = table.made()
        landed = land_one(source, sink)
        last = position_in(sink).last
        assert last is not None
        assert last.offset == max(each[4] for each in keys_of(source.path, "S", landed.end))

    def test_a_range_without_a_record_keeps_the_last_one(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        sink = table.made()
        land_all(source, sink, TaskLimits())
        before = position_in(sink)
        filled(source.path, 2)
        damaged(source.path, 300)
        land_one(attrs.evolve(source, skip_damage=True), sink, TaskLimits(1, 1))
        after = position_in(sink)
        assert after.end > before.end
        assert after.last == before.last is not None

    def test_a_commit_keeps_the_positions_of_other_stores(self, table: SinkTable) -> None:
        sink, mine, theirs = table.made(), Position(10, 30), Position(0, 20)
        for store, each in (("S", Position(0, 10)), ("O", theirs), ("S", mine)):
            sink.commit(sink.head(store), store, [], each)
        again = table.made()
        assert (position_in(again), position_in(again, "O")) == (mine, theirs)

    def test_two_stores_land_side_by_side(
        self, table: SinkTable, source: LandingSource, tmp_path: Path
    ) -> None:
        """Also where one commits while the other one writes."""
        other, sink = LandingSource(filled(tmp_path / "o", 120), "O"), table.made()
        beside = table.made()
        first = land_one(
            source, sink, on_phase=when("written", lambda: land_one(other, beside, SMALL))
        )
        assert first.won
        table.assert_exactly(
            keys_of(source.path, "S", first.end)
            + keys_of(other.path, "O", position_in(sink, "O").end)
        )
        for each in (other, source):
            land_all(each, sink)
        table.assert_exactly(keys_of(source.path, "S") + keys_of(other.path, "O"))

    @of_any_table
    def test_another_store_under_the_same_identity_is_refused(
        self, table: SinkTable, source: LandingSource, tmp_path: Path
    ) -> None:
        with open_small(tmp_path / "other") as store:
            store.put_batch([Message("t", b"x" * 400, queue_id=0) for _ in range(400)])
        sink = table.made()
        land_all(source, sink)
        with pytest.raises(WrongLog, match="restored"):
            land_one(LandingSource(tmp_path / "other", "S"), sink)
        table.assert_exactly(keys_of(source.path, "S"))

    @of_any_table
    def test_a_store_restored_from_an_older_copy_is_refused(
        self, table: SinkTable, source: LandingSource, tmp_path: Path
    ) -> None:
        copy_store(source.path, tmp_path / "backup")
        filled(source.path, 50)
        sink = table.made()
        land_all(source, sink)
        expected = keys_of(source.path, "S")
        shutil.rmtree(source.path)
        copy_store(tmp_path / "backup", source.path)
        with pytest.raises(WrongLog, match="no whole record is there"):
            land_one(source, sink)
        with open_small(source.path) as store:  # it grows past the place, with other messages
            store.put_batch([Message("t", bytes([n]) * 300, queue_id=0) for n in range(200)])
        with pytest.raises(WrongLog):
            land_one(source, sink)
        table.assert_exactly(expected)

    def test_a_second_dispatcher_loses_and_leaves_nothing(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        first, second, before = table.made(), table.made(), table.in_folder()
        winners = []
        meanwhile = when("written", lambda: winners.append(land_one(source, first)))
        landed = land_one(source, second, on_phase=meanwhile)
        assert ([each.won for each in winners], landed.won) == ([True], False)
        assert table.commits() == 1
        table.assert_exactly(keys_of(source.path, "S", landed.end))
        assert table.in_folder() - before == set(table.files())

    def test_an_old_version_is_refused_as_a_conflict(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        """The sink itself, with nothing around it that looks at positions."""
        sink = table.made()
        old = sink.head("S")
        land_one(source, sink)
        with pytest.raises(Conflict):
            sink.commit(old, "S", [], Position(0, 10))
        assert table.commits() == 1

    def test_a_version_before_a_commit_of_another_store_is_a_conflict(
        self, table: SinkTable
    ) -> None:
        """Else the position of the other store would be lost."""
        sink = table.made()
        old = sink.head("S")
        sink.commit(sink.head("O"), "O", [], Position(0, 10))
        with pytest.raises(Conflict):
            sink.commit(old, "S", [], Position(0, 10))
        assert table.commits() == 1

    @pytest.mark.parametrize("does", [True, False])
    def test_an_error_of_a_commit_says_nothing_of_what_it_did(
        self, table: SinkTable, source: LandingSource, does: bool
    ) -> None:
        lying: Any = LyingSink(table.made(), does=does)
        landed = land_one(source, lying)
        assert landed.won
        assert table.commits() == 1
        table.assert_exactly(keys_of(source.path, "S", landed.end))

    def test_a_commit_whose_answer_is_lost_keeps_its_files_when_others_go_on(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        """The position is neither that of the start nor that of the commit."""
        beside = table.made()
        late: Any = LateSink(table.made(), lambda: land_one(source, beside))
        landed = land_one(source, late)
        assert landed.won
        assert table.commits() == 2
        table.assert_exactly(keys_of(source.path, "S", position_in(beside).end))

    def test_files_of_an_unknown_commit_stay(
        self, table: SinkTable, source: LandingSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the history does not tell whether the commit was done."""
        first, second, before = table.made(), table.made(), table.in_folder()
        monkeypatch.setattr(committing, "lists", lambda *_: None)
        meanwhile = when("written", lambda: land_one(source, first))
        landed = land_one(source, second, on_phase=meanwhile)
        assert not landed.won
        assert len(table.in_folder() - before) == 2 * len(table.files())

    @of_any_table
    def test_a_task_that_fails_lands_nothing(self, table: SinkTable, source: LandingSource) -> None:
        def fails(tasks: Sequence[Any]) -> Sequence[Written]:
            in_process(tasks[:1])
            raise OSError(28, "No space left on device")

        sink = table.made()
        with pytest.raises(OSError, match="No space"):
            land(source, sink, fails, SMALL)
        assert sink.head("S").position is None
        land_all(source, sink)
        table.assert_exactly(keys_of(source.path, "S"))

    @of_any_table
    def test_damage_ends_a_pass_or_is_passed_over(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        offset, sink = damaged(source.path, 40), table.made()
        with pytest.raises(CorruptLog, match=str(offset)):
            land_all(source, sink)
        passes = land_all(attrs.evolve(source, skip_damage=True), sink)
        assert sum(each.damaged for each in passes) == 1
        expected = keys_of(source.path, "S")
        assert len(expected) == 299
        table.assert_exactly(expected)

    def test_a_range_without_rows_moves_the_position(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        sink, chosen = table.made(), Chosen(topics=frozenset({"none such"}))
        passes = land_all(attrs.evolve(source, chosen=chosen), sink)
        assert sum(each.rows for each in passes) == 0
        assert position_in(sink).end == passes[-1].end
        assert position_in(sink).last is not None

    def test_topics_of_any_name_land(self, table: SinkTable, tmp_path: Path) -> None:
        """Also in the names of folders; the longest one is too long for them."""
        names = ["a%b", "with space", "a=b", "ü", "%DLQ%group", "x" * 120, "|" * 127]
        with open_small(tmp_path / "s") as store:
            store.put_batch([Message(name, b"1", queue_id=0) for name in names])
        land_all(LandingSource(tmp_path / "s", "S"), table.made())
        table.assert_exactly(keys_of(tmp_path / "s", "S"))
        assert sorted(table.read()["topic"].to_pylist()) == sorted(names)
