"""Messages by key, with the check of the index's results; and the list of queues."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from core.tests.store.support import open_small
from lakelog import Message, Store
from lakelog.errors import CorruptIndex, MissingIndex
from lakelog_queues.finding.finder import QueueList
from lakelog_queues.finding.results import QueueInfo
from lakelog_queues.finding.search import KeyQuery
from lakelog_testing.crash.opener import owned_by
from plugins.queues.tests.reading.support import QueuesInMemory, log_of_store

pytestmark = pytest.mark.both_ways


class Index:
    """Yields given offsets for every key; then fails if it is broken."""

    def __init__(self, offsets: Sequence[int], *, broken: bool = False) -> None:
        self._offsets = offsets
        self._broken = broken

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        yield from self._offsets
        if self._broken:
            raise CorruptIndex("a chain runs in a circle", path="index/1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_small(tmp_path / "s") as store:
        store.put(Message("t", b"0", keys=["a", "b"]))
        store.put(Message("t", b"1", keys="ab"))
        store.put(Message("u", b"2", keys="a"))
        store.put(Message("t", b"3", properties={"UNIQ_KEY": "a"}))
        yield store


def query_of(store: Store, *, broken: bool = False, more: Sequence[int] = ()) -> KeyQuery:
    places = [each.physical_offset for each in store.scan()][::-1]
    return KeyQuery(
        Index([*more, *places, *places], broken=broken), log_of_store(store), lambda _: 0
    )


def test_topic_and_key_are_checked_and_nothing_comes_twice(store: Store) -> None:
    query = query_of(store)
    assert [each.body for each in query.query("t", "a")] == [b"3", b"0"]
    assert [each.body for each in query.query("t", "a", max_messages=1)] == [b"3"]
    assert [each.body for each in query.query("u", "a")] == [b"2"]
    assert query.query("t", "c") == []


def test_times_are_exact(store: Store) -> None:
    query = query_of(store)
    (last, *_) = query.query("t", "a")
    at = last.store_timestamp_ms
    assert last in query.query("t", "a", at, at)
    assert last not in query.query("t", "a", at + 1)
    assert last not in query.query("t", "a", None, at - 1)


def test_raw_offsets(store: Store) -> None:
    places = [each.physical_offset for each in store.scan()]
    assert query_of(store).offsets("t", "a") == places[::-1]
    assert query_of(store).offsets("t", "a", max_count=2) == places[:1:-1]


def test_a_damaged_index_gives_what_it_can(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lakelog"):
        found = query_of(store, broken=True, more=[1 << 40, 1]).query("t", "a")
    assert [each.body for each in found] == [b"3", b"0"]
    assert "runs in a circle" in caplog.text
    assert "points to no whole record" in caplog.text


def test_what_retention_has_deleted_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(tmp_path / "s") as store, caplog.at_level(logging.WARNING, "lakelog"):
        places = [store.put(Message("t", bytes(9000), keys="a")).physical_offset for _ in range(6)]
        query = KeyQuery(Index(places[::-1]), log_of_store(store), lambda _: 0)
        assert len(query.query("t", "a")) == 6
        store.flush()
        assert store.wait_dispatched()  # as retention does
        owned_by(store).log.segments.exclude_first()
        owned_by(store).positions.minimum = owned_by(store).log.segments.first_offset
        assert [each.physical_offset for each in query.query("t", "a")] == places[:0:-1]
    assert caplog.text == ""


def test_without_an_index(store: Store) -> None:
    query = KeyQuery(None, log_of_store(store), lambda _: 0)
    for call in (query.query, query.offsets):
        with pytest.raises(MissingIndex, match="install lakelog-hash-index"):
            call("t", "a")


# --- the list of queues, in Java's order ---


def test_queues_in_the_order_of_utf16() -> None:
    queues = QueuesInMemory()
    for queue in [("\uffe5", 0), ("\U0001f600", 0), ("b", 10), ("b", 2), ("a", 0)]:
        queues.of[queue] = []
    queues.of["b", 2] = [(4, 100, 91, 0, 1), (5, 300, 92, 0, 1)]
    listed = QueueList(queues, lambda: 0)
    assert listed.topics() == ["a", "b", "\U0001f600", "\uffe5"]
    infos = listed.infos()
    assert [(each.topic, each.queue_id) for each in infos] == [
        ("a", 0),
        ("b", 2),
        ("b", 10),
        ("\U0001f600", 0),
        ("\uffe5", 0),
    ]
    assert infos[1] == QueueInfo("b", 2, "SimpleCQ", 4, 6, 392)
    assert infos[0] == QueueInfo("a", 0, "SimpleCQ", 0, 0, 0)
    assert listed.infos("b") == infos[1:3]
    assert listed.infos("none") == []
    assert listed.bounds("b", 2) == (4, 6)
    assert listed.bounds("c", 2) is None
