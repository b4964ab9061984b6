"""The contract of sinks: every message is a row, once, whatever goes wrong between and beside.

An implementer gives the fixture ``table``; ``test_landing.py`` has those of this package.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog
from lakelog import Message
from lakelog_lake.errors import Conflict, CorruptLog, WrongLog
from lakelog_lake.landing.dispatcher import LandingSource, land
from lakelog_lake.log.selection import Chosen
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.ranges import TaskLimits
from lakelog_lake.tasks.task import Written, write
from lakelog_testing.copies import copy_store
from plugins.lake.tests.landing.tables import SMALL, SinkTable, keys_of, land_all
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
        if self._times == 0:
            self._inner.commit(*given)
            return
        self._times -= 1
        if self._does:
            self._inner.commit(*given)
        raise OSError("the answer was lost")


class SinkContract:
    """The fixtures ``source`` and ``store_path`` are a store of 300 messages."""

    def test_rows_are_the_messages(self, table: SinkTable, source: LandingSource) -> None:
        land_all(source, table.made())
        with lakelog.open(source.path, mode="read") as store:
            expected = expected_rows(store.scan(), "S")
        rows = table.read().select(list(expected[0])).to_pylist()
        for row in rows:
            row["properties"] = dict(row["properties"])
        assert sorted(rows, key=lambda row: int(row["physical_offset"])) == expected

    def test_each_pass_goes_on_where_the_table_says(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        passes = land_all(source, table.made())
        assert len(passes) > 2
        assert all(a.end == b.start for a, b in itertools.pairwise(passes))
        table.assert_exactly(keys_of(source.path, "S"))
        assert table.commits() == len(passes)

    def test_what_comes_later_lands_later(self, table: SinkTable, source: LandingSource) -> None:
        land_all(source, table.made())
        filled(source.path, 20)
        assert sum(each.rows for each in land_all(source, table.made())) == 20
        assert land_all(source, table.made()) == []
        table.assert_exactly(keys_of(source.path, "S"))

    def test_the_position_says_where_queues_go_on(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        sink = table.made()
        land_all(source, sink)
        position = sink.head("S").position
        assert position is not None
        ends: dict[str, dict[int, int]] = {}
        for _, topic, queue_id, offset, _ in keys_of(source.path, "S"):
            queues = ends.setdefault(topic, {})
            queues[queue_id] = max(queues.get(queue_id, 0), offset + 1)
        assert position.next_offsets == ends

    def test_the_position_has_the_last_record_of_the_pass(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        sink = table.made()
        landed = land(source, sink, in_process, SMALL)
        position = sink.head("S").position
        assert landed is not None
        assert position is not None
        assert position.last is not None
        assert position.last.offset == max(
            each[4] for each in keys_of(source.path, "S", landed.end)
        )

    def test_a_range_without_a_record_keeps_the_last_one(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        sink = table.made()
        land_all(source, sink, TaskLimits())
        before = sink.head("S").position
        filled(source.path, 2)
        damaged(source.path, 300)
        passing = attrs.evolve(source, skip_damage=True)
        land(passing, sink, in_process, TaskLimits(pass_bytes=1, task_bytes=1))
        after = sink.head("S").position
        assert before is not None
        assert after is not None
        assert after.end > before.end
        assert after.last == before.last is not None

    def test_a_commit_keeps_the_positions_of_other_stores(self, table: SinkTable) -> None:
        sink, mine, theirs = table.made(), Position(0, 10), Position(0, 20)
        sink.commit(sink.head("S"), "S", [], mine)
        sink.commit(sink.head("O"), "O", [], theirs)
        mine = Position(10, 30)
        sink.commit(sink.head("S"), "S", [], mine)
        again = table.made()
        assert (again.head("S").position, again.head("O").position) == (mine, theirs)

    def test_two_stores_land_side_by_side(
        self, table: SinkTable, source: LandingSource, tmp_path: Path
    ) -> None:
        sources, sink = [source, LandingSource(filled(tmp_path / "o", 120), "O")], table.made()
        while any([land(each, sink, in_process, SMALL) for each in sources]):  # noqa: C419  # a generator would stop at the first that lands
            pass
        table.assert_exactly([row for each in sources for row in keys_of(each.path, each.store)])

    @of_any_table
    def test_another_store_under_the_same_identity_is_refused(
        self, table: SinkTable, source: LandingSource, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        with open_small(other) as store:
            store.put_batch([Message("t", b"x" * 400, queue_id=0) for _ in range(400)])
        sink = table.made()
        land_all(source, sink)
        with pytest.raises(WrongLog, match="restored"):
            land(LandingSource(other, "S"), sink, in_process, SMALL)
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
            land(source, sink, in_process, SMALL)
        with open_small(source.path) as store:  # it grows past the place, with other messages
            store.put_batch([Message("t", bytes([n]) * 300, queue_id=0) for n in range(200)])
        with pytest.raises(WrongLog):
            land(source, sink, in_process, SMALL)
        table.assert_exactly(expected)

    def test_a_second_dispatcher_loses_and_leaves_nothing(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        first, second, before = table.made(), table.made(), table.in_folder()

        def meanwhile(phase: str) -> None:
            if phase == "written":
                winner = land(source, first, in_process, SMALL)
                assert winner is not None
                assert winner.won

        landed = land(source, second, in_process, SMALL, meanwhile)
        assert landed is not None
        assert not landed.won
        assert table.commits() == 1
        table.assert_exactly(keys_of(source.path, "S", landed.end))
        assert table.in_folder() - before == set(table.files())

    def test_a_commit_beside_another_store_is_tried_again(
        self, table: SinkTable, source: LandingSource, tmp_path: Path
    ) -> None:
        other = LandingSource(filled(tmp_path / "other", 30), "O")
        mine, theirs = table.made(), table.made()

        def meanwhile(phase: str) -> None:
            if phase == "written":
                land(other, theirs, in_process, SMALL)

        landed = land(source, mine, in_process, SMALL, meanwhile)
        assert landed is not None
        assert landed.won
        table.assert_exactly(keys_of(source.path, "S", landed.end) + keys_of(other.path, "O"))

    def test_an_old_version_is_refused_as_a_conflict(
        self, table: SinkTable, source: LandingSource
    ) -> None:
        """The sink itself, with nothing around it that looks at positions."""
        sink = table.made()
        old = sink.head("S")
        land(source, sink, in_process, SMALL)
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
        landed = land(source, LyingSink(table.made(), does=does), in_process, SMALL)
        assert landed is not None
        assert landed.won
        assert table.commits() == 1
        table.assert_exactly(keys_of(source.path, "S", landed.end))

    @of_any_table
    def test_a_task_that_fails_lands_nothing(self, table: SinkTable, source: LandingSource) -> None:
        def fails(tasks: Sequence[Any]) -> Sequence[Written]:
            write(tasks[0])
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
        position = sink.head("S").position
        assert position is not None
        assert position.end == passes[-1].end
        assert position.last is not None

    def test_topics_of_any_name_land(self, table: SinkTable, tmp_path: Path) -> None:
        """None of them gets into the path of a file."""
        names = ["a%b", "with space", "a=b", "ü", "%DLQ%group", "x" * 120]
        with open_small(tmp_path / "s") as store:
            store.put_batch([Message(name, b"1", queue_id=0) for name in names])
        land_all(LandingSource(tmp_path / "s", "S"), table.made())
        table.assert_exactly(keys_of(tmp_path / "s", "S"))
        assert sorted(table.read()["topic"].to_pylist()) == sorted(names)
