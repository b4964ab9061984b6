"""The shared table of queue ends: as a dictionary, in several processes, and through deaths."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.processes.dying import die
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.properties import LIGHT_QUEUE_PREFIX
from lakelog.format.queue_offsets import Queue, QueueOffsets
from lakelog.processes import queue_table as queuetable
from lakelog.processes.queue_table import QueueTable, remove_table, table_path
from tests.support.sampling import at_every, every

FILES = RealFileSystem()
TOPICS = st.text(min_size=1, max_size=40) | st.text(st.characters(categories=["Cs"]), min_size=1)
NAMES = st.one_of(TOPICS, TOPICS.map(lambda topic: LIGHT_QUEUE_PREFIX + topic))
QUEUES = st.tuples(NAMES, st.integers(0, 1000))


def a_table(path: Path, start: dict[Queue, int] | None = None) -> QueueTable:
    (path / "lakelog").mkdir(exist_ok=True)
    return QueueTable.make(FILES, path, 1, start or {})


@settings(max_examples=25, deadline=None)
@given(
    start=st.dictionaries(QUEUES, st.integers(0, 1 << 60), max_size=20),
    steps=st.lists(st.tuples(QUEUES, st.integers(1, 1 << 20)), max_size=40),
    topics=st.lists(NAMES, max_size=5, unique=True),
)
def test_it_counts_as_a_dictionary_does(
    tmp_path_factory: pytest.TempPathFactory,
    start: dict[Queue, int],
    steps: list[tuple[Queue, int]],
    topics: list[str],
) -> None:
    table, known = a_table(tmp_path_factory.mktemp("table"), start), QueueOffsets(start)
    other = QueueTable(FILES, table._path, 1)
    for at, (queue, count) in enumerate(steps):
        assert table.next(queue) == known.next(queue)
        known.advance(queue, count)
        (other if at % 2 else table).advance(queue, count)
    for each in (table, other):
        assert each.snapshot() == known.snapshot()
        assert each.new_light_queues(topics) == known.new_light_queues(topics)


def test_a_hash_that_many_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queuetable, "_hash", lambda _key, _id: queuetable.FIRST_SLOTS - 2)
    table, known = a_table(tmp_path), QueueOffsets()
    queues = [(topic, number) for topic in ("a", "b", "ab", "%LMQ%a") for number in range(20)]
    for count, queue in enumerate(queues, 1):
        table.advance(queue, count)
        known.advance(queue, count)
    assert QueueTable(FILES, tmp_path, 1).snapshot() == known.snapshot()
    assert table.next(("c", 0)) == 0


def test_an_end_is_raised_and_never_lowered(tmp_path: Path) -> None:
    table = a_table(tmp_path, {("a", 0): 7})
    for end, after in ((3, 7), (9, 9), (9, 9)):
        table.raise_to(("a", 0), end)
        assert table.next(("a", 0)) == after
    table.raise_to(("new", 1), 1)
    assert table.next(("new", 1)) == 1


def test_it_grows_and_others_go_on_in_the_larger_one(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    other = QueueTable(FILES, tmp_path, 1)
    expected = {}
    for number in range(3 * queuetable.FIRST_SLOTS):
        queue = (f"topic-{number}" + "x" * (number % 200), number % 7)
        if not table.has_room([queue[0]]):
            table = table.grown([queue[0]])
        table.advance(queue, number + 1)
        expected[queue] = number + 1
    assert table.generation > 1
    other.next(next(iter(expected)))
    other.reopen(table.generation)
    assert other.snapshot() == expected
    assert all(other.next(queue) == end for queue, end in expected.items())


def test_names_that_are_long_find_room(tmp_path: Path) -> None:
    expected = {(f"{number}" + "x" * 250, 0): number for number in range(400)}
    table = a_table(tmp_path, expected)
    assert table.has_room(["y" * 255])
    for number in range(8):
        name = f"{number}" + "n" * 30_000
        if not table.has_room([name]):
            table = table.grown([name])
        table.advance((name, 0), 1)
        expected[name, 0] = 1
    assert table.snapshot() == expected


@at_every(29)
def test_a_death_at_any_step_of_a_new_queue_leaves_a_table_that_is_whole(
    tmp_path: Path, stride: int
) -> None:
    before = {("old", 0): 5, ("%LMQ%old", 0): 6}
    for step in every(stride):
        remove_table(FILES, tmp_path, 1)
        table = a_table(tmp_path, before)
        lived = not die(step, queuetable, partial(table.advance, ("new", 3), 1))
        found = QueueTable(FILES, tmp_path, 1)
        assert found.snapshot() in (before, {**before, ("new", 3): 0}, {**before, ("new", 3): 1})
        for each in (table, found):
            each.raise_to(("new", 3), 1)
            assert each.snapshot() == {**before, ("new", 3): 1}
            assert each.new_light_queues(["%LMQ%old", "%LMQ%new"]) == 2
        if lived:
            break
    assert step > 100


@at_every(79)
def test_a_death_at_any_step_of_a_growth_leaves_the_former_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    monkeypatch.setattr(queuetable, "FIRST_SLOTS", 4)
    before = {(f"topic-{number}", number): number for number in range(3)}
    table = a_table(tmp_path, before)
    for step in every(stride):
        lived = not die(step, queuetable, partial(table.grown, ["new"]))
        assert table.snapshot() == before
        assert table.grown(["new"]).snapshot() == before  # over whatever the dead one left
        if lived:
            break
    assert step > 100


@pytest.mark.disk
def test_where_there_is_no_room_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(tmp_path, {("a", 0): 1})
    monkeypatch.setattr(queuetable, "_BYTES_PER_SLOT", 1 << 50)
    with pytest.raises(OSError, match="File too large"):
        table.grown(["b"])
    assert not table_path(tmp_path, 2).exists()
    assert table.next(("a", 0)) == 1
