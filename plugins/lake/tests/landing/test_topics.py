"""A table for each topic: each by its own position, wherever a dispatcher dies, none dragged on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import lakelog
from lakelog import Message
from lakelog.errors import SettingsError
from lakelog_lake.bodies.base import Whole
from lakelog_lake.errors import SelectionChanged, TableMismatch
from lakelog_lake.landing import targets
from lakelog_lake.landing.targets import targets_for
from lakelog_lake.log.wanted import Chosen
from lakelog_lake.sinks.locations import TableLocation, decoded, encoded, is_template, named
from lakelog_lake.tables.shape import TableShape
from lakelog_lake.tasks.task import LandingSource
from lakelog_lake.verify.landed_table import all_opened
from plugins.lake.tests.landing.passes import sink_for
from plugins.lake.tests.landing.table_specs import (
    all_passes,
    assert_topics,
    dispatcher,
    land_spec,
    per_topic,
    stop_at,
)
from plugins.lake.tests.landing.tables import (
    SMALL,
    any_kind,
    assert_exactly,
    keys_of,
    land_all,
    make,
    position_in,
    read,
)
from plugins.lake.tests.stores import messages, open_small

NAMES = ["a%b", "with space", "a=b", "ü", "%DLQ%group", "-x", "_x", "x_dead_letters", "a_x25_b"]
TRAPS = [
    *("a_xA%", "a\nx25_", "%dead_letters", "dead_letters", "x_x5F", "_xA_", "a__x", "x41_"),
    *("_x25_", "%x41_", "a_", "a_%", "_", "-", "a-"),
]


def test_names_can_be_told_again() -> None:
    topics = [*NAMES, *TRAPS]
    names = {encoded(each) for each in topics}
    assert len(names) == len(topics)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", each) and each[0] != "-" for each in names)
    assert [decoded(encoded(each)) for each in topics] == topics
    assert not any(each.endswith("_dead_letters") for each in names)
    with pytest.raises(SettingsError, match="last part"):
        is_template("{topic}.messages")


@attrs.frozen
class Marked(TableLocation):
    """Tables with marks of topics."""

    names: Sequence[str]
    mark_of: Callable[[str], str | None]
    text: str = "marked:here"

    def table(self, given: str | None) -> str:
        return str(given)

    def beside(self, name: str) -> list[str]:
        return list(self.names)

    def sink(self, name: str, shape: TableShape) -> Any:
        return SimpleNamespace(marked=lambda: self.mark_of(name))


@pytest.mark.parametrize("topic", ["ф" * 40, "\U0001f4a9" * 60, "x" * 201, "x" * 183 + "ф" * 9])
def test_a_name_that_is_too_long_is_cut(topic: str) -> None:
    others = [topic + "a", topic[:-1] + "b"]
    names = [named("of_{topic}", each) for each in (topic, *others)]
    assert len(set(names)) == 3
    assert {decoded(each[3:]) for each in names} == {None}  # no other topic has one of them
    assert all(re.fullmatch(r"of_[A-Za-z0-9_]{1,200}", each) for each in names)
    marks = dict(zip(names, (topic, *others), strict=True))
    there = [*names, f"{names[0]}_dead_letters", "of_short", "else"]
    marks |= {"of_short": "other"}
    assert list(Marked(there, marks.get).topics("of_{topic}")) == [topic, *others]
    assert list(Marked(names, lambda _: "somebody's").topics("of_{topic}")) == []


@pytest.mark.sample(1)
def test_topics_with_long_names_land_beside_others(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    long, source = "заказы" * 8, LandingSource(store_path, "S")
    with open_small(store_path) as store:
        store.put(Message(long, b"1", queue_id=0))
    spec = per_topic(kind, tmp_path / "t")
    assert sum(each.rows for each in land_spec(source, spec)) == 301
    with open_small(store_path) as store:
        store.put(Message(long, b"2", queue_id=0))
    assert sum(each.rows for each in land_spec(source, spec)) == 1
    table = spec.table if kind == "iceberg" else None
    topics = {each.topic: each.table for each in all_opened(spec.to, table)}
    assert sum(each.num_rows for each in topics[long].batches(None, ["topic"])) == 2
    assert len(topics) == 4


@pytest.mark.sample(1)
def test_each_topic_has_its_rows(kind: str, store_path: Path, tmp_path: Path) -> None:
    source, spec = LandingSource(store_path, "S"), per_topic(kind, tmp_path / "t")
    passes = land_spec(source, spec)
    assert sum(each.rows for each in passes) == 300
    assert_topics(kind, tmp_path / "t", keys_of(store_path, "S"))
    with open_small(store_path) as store:
        store.put_batch(list(messages(20)))
        store.put_batch([Message(name, b"1", queue_id=0) for name in NAMES[:3]])
    assert sum(each.rows for each in land_spec(source, spec)) == 23
    assert land_spec(source, spec) == []
    assert_topics(kind, tmp_path / "t", keys_of(store_path, "S"))


@pytest.mark.parametrize("again", [False, True])
def test_queues_that_begin_too_late_are_not_believed(tmp_path: Path, again: bool) -> None:
    """One queue of a topic is gone: its table starts where the log does."""
    store_path = tmp_path / "s"
    source, spec = LandingSource(store_path, "S"), per_topic("parquet", tmp_path / "t")
    lander = dispatcher(source, spec)
    with open_small(store_path) as store:
        store.put(Message("old", b"1", queue_id=0))
        _two_queues(store, "b")
    shutil.rmtree(store_path / "consumequeue" / "b" / "0")
    all_passes(lander)
    assert_topics("parquet", tmp_path / "t", keys_of(store_path, "S"))
    with open_small(store_path) as store:
        _two_queues(store, "a")
    shutil.rmtree(store_path / "consumequeue" / "a" / "0")
    all_passes(dispatcher(source, spec) if again else lander)
    assert_topics("parquet", tmp_path / "t", keys_of(store_path, "S"))


def _two_queues(store: lakelog.Store, topic: str) -> None:
    store.put_batch([Message(topic, b"1", queue_id=0), Message(topic, b"2", queue_id=1)])


@pytest.mark.parametrize(("phase", "number"), [("written", 1), ("one committed", 2)])
@any_kind
def test_a_kill_between_commits_loses_and_doubles_nothing(
    kind: str, store_path: Path, tmp_path: Path, phase: str, number: int
) -> None:
    source, spec = LandingSource(store_path, "S"), per_topic(kind, tmp_path / "t")
    stop_at(dispatcher(source, spec), phase, number)
    land_spec(source, spec)
    assert_topics(kind, tmp_path / "t", keys_of(store_path, "S"))


@any_kind
def test_an_idle_table_is_moved_seldom_and_at_the_end(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_path = tmp_path / "s"
    with open_small(store_path) as store:
        store.put(Message("idle", b"1", queue_id=0))
        store.put_batch([Message("busy", b"x" * 200, queue_id=0) for _ in range(300)])
    lander = dispatcher(LandingSource(store_path, "S"), per_topic(kind, tmp_path / "t"))
    passes = all_passes(lander)
    idle = next(each for each in lander.targets.served if each.topics == frozenset({"idle"}))

    def landed_to() -> int:
        return position_in(idle.sink).end

    assert landed_to() == passes[0].end < passes[-1].end
    assert idle.start == passes[-1].end
    lander.finish()
    assert landed_to() == passes[-1].end
    monkeypatch.setattr(targets, "IDLE_BYTES", 1)
    with open_small(store_path) as store:
        store.put(Message("busy", b"1", queue_id=0))
    again = dispatcher(LandingSource(store_path, "S"), per_topic(kind, tmp_path / "t"))
    landed = again.one_pass()
    assert landed is not None
    assert landed_to() == landed.end


@any_kind
def test_a_run_without_news_leaves_no_version(kind: str, tmp_path: Path) -> None:
    """As by cron; the position lags, in the segment that the log needs for it anyway."""
    store_path, table = tmp_path / "s", tmp_path / "t"
    spec = per_topic(kind, table, {"*": Whole(is_text=True)})
    with lakelog.open(store_path, segment_size_bytes=1 << 20) as store:
        store.put_batch([Message(name, b"1", queue_id=0) for name in ("busy", "idle")])
    land_spec(LandingSource(store_path, "S"), spec)
    lander = dispatcher(LandingSource(store_path, "S"), spec)
    all_passes(lander)
    idle = next(each for each in lander.targets.served if each.topics == frozenset({"idle"}))
    assert idle.dead_letters is not None
    sinks = (idle.sink, idle.dead_letters.sink)
    before = [position_in(each) for each in sinks]
    for _ in range(3):
        with lakelog.open(store_path, segment_size_bytes=1 << 20) as store:
            store.put(Message("busy", b"2", queue_id=0))
        land_spec(LandingSource(store_path, "S"), spec)
    assert [position_in(each) for each in sinks] == before
    assert_topics(kind, table, keys_of(store_path, "S"))


@any_kind
def test_a_row_of_an_idle_table_lands_behind_what_was_empty(kind: str, tmp_path: Path) -> None:
    store_path = tmp_path / "s"
    lander = dispatcher(LandingSource(store_path, "S"), per_topic(kind, tmp_path / "t"))
    with open_small(store_path, flush="inline") as store:
        for number in range(6):
            store.put(Message("idle" if number % 3 == 0 else "busy", b"%d" % number))
            all_passes(lander)
    assert_topics(kind, tmp_path / "t", keys_of(store_path, "S"))


@any_kind
def test_two_dispatchers_of_all_topics(kind: str, store_path: Path, tmp_path: Path) -> None:
    source, spec = LandingSource(store_path, "S"), per_topic(kind, tmp_path / "t")
    one, other = (dispatcher(source, spec) for _ in range(2))
    while any([one.one_pass(), other.one_pass()]):
        pass
    with open_small(store_path) as store:
        store.put_batch(list(messages(30)))
        store.put(Message("new", b"1"))
    while any([other.one_pass(), one.one_pass()]):
        pass
    assert_topics(kind, tmp_path / "t", keys_of(store_path, "S"))


def test_a_table_of_something_else_under_a_topics_name_is_refused(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    spec = per_topic(kind, tmp_path / "t")
    targets_for(spec)
    to, name = spec.to.replace("{topic}", "topic-1"), spec.table
    of_all = sink_for(to, name and name.replace("{topic}", "topic-1"))
    of_all.prepare()
    land_all(LandingSource(store_path, "S"), of_all)
    with pytest.raises(TableMismatch, match="holds the messages of all topics"):
        land_spec(LandingSource(store_path, "S"), spec)


def test_a_new_topic_is_not_read_from_the_beginning(tmp_path: Path) -> None:
    store_path = tmp_path / "s"
    with open_small(store_path) as store:
        store.put_batch([Message("old", b"x" * 200, queue_id=0) for _ in range(300)])
    source, spec = LandingSource(store_path, "S"), per_topic("parquet", tmp_path / "t")
    land_spec(source, spec)
    with lakelog.open(store_path, mode="read") as store:
        end = store.max_offset
    with open_small(store_path) as store:
        store.put(Message("new", b"1", queue_id=0))
    assert min(each.start for each in land_spec(source, spec)) >= end


SYSTEM = "RMQ_SYS_TRACE_TOPIC"
ALL = Chosen(system_topics=True)


@pytest.fixture
def mixed(tmp_path: Path) -> LandingSource:
    """A store with messages of a system topic among others."""
    with open_small(tmp_path / "s") as store:
        for number, message in enumerate(messages(120)):
            store.put(message)
            if number % 3 == 0:
                store.put(Message(SYSTEM, b"trace", queue_id=0))
    return LandingSource(tmp_path / "s", "S")


@any_kind
def test_another_choice_is_refused(kind: str, mixed: LandingSource, tmp_path: Path) -> None:
    land_all(mixed, make(kind, tmp_path / "t"))
    with pytest.raises(
        SelectionChanged, match=r"but those of system topics .* land in a new table"
    ):
        land_all(attrs.evolve(mixed, chosen=ALL), make(kind, tmp_path / "t"))
    assert read(kind, tmp_path / "t").num_rows == 120
    assert land_all(mixed, make(kind, tmp_path / "t")) == []
    land_all(attrs.evolve(mixed, chosen=ALL), make(kind, tmp_path / "new"))
    assert_exactly(kind, tmp_path / "new", keys_of(mixed.path, "S"))
    with pytest.raises(SelectionChanged, match="of system topics too"):
        land_all(mixed, make(kind, tmp_path / "new"))


def test_topics_with_tables_of_their_own_may_come_later(
    mixed: LandingSource, tmp_path: Path
) -> None:
    """The table of a topic begins with its first message, whenever it is made."""
    wanted = per_topic("delta", tmp_path / "t")
    land_spec(mixed, wanted, SMALL)
    land_spec(attrs.evolve(mixed, chosen=ALL), wanted, SMALL)
    found = read("delta", Path(wanted.to.partition(":")[2].replace("{topic}", SYSTEM)))
    assert found.num_rows == 40
    land_spec(mixed, wanted, SMALL)
