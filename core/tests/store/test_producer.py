"""Many puts of one topic: by :class:`lakelog.Producer`, and by columns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelog
import lakelog.aio
from core.tests.store.support import SEGMENT, open_small, read_small
from lakelog.errors import IllegalMessage
from lakelog.message import MessageColumns

pytestmark = pytest.mark.both_ways


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lakelog.Store]:
    with lakelog.open(tmp_path / "s", queues_per_topic=3) as opened:
        yield opened


def test_it_puts_what_a_message_of_the_same_fields_would(store: lakelog.Store) -> None:
    orders = store.producer("orders", tags="new", queue=2)
    for at in range(3):
        result = orders.put(b"%d" % at, keys=f"k{at}")
        assert (result.topic, result.queue_id, result.queue_offset) == ("orders", 2, at)
    assert store.wait_dispatched()
    found = list(store.read("orders", 2))
    assert [(each.body, each.tags, each.keys) for each in found] == [
        (b"0", "new", ["k0"]),
        (b"1", "new", ["k1"]),
        (b"2", "new", ["k2"]),
    ]
    twin = store.put(lakelog.Message("orders", b"0", tags="new", keys="k0", queue_id=2))
    assert twin.size == found[0].size


def test_without_a_queue_it_takes_turns(store: lakelog.Store) -> None:
    orders = store.producer("orders")
    assert [orders.put(b"").queue_id for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_it_puts_many(store: lakelog.Store) -> None:
    orders = store.producer("orders", tags="a", queue=1)
    results = orders.put_many([b"x", b"y"], keys=["k1", "k2"])
    assert [each.queue_offset for each in results] == [0, 1]
    assert orders.put_many([], None) == []
    assert store.wait_dispatched()
    assert [each.keys for each in store.read("orders", 1)] == [["k1"], ["k2"]]


def test_unusual_bodies_and_keys_are_put_too(store: lakelog.Store) -> None:
    orders = store.producer("orders", queue=0)
    given: list[tuple[Any, Any]] = [
        (b"before", None),
        (bytearray(b"x"), None),
        (memoryview(b"x"), ["k1", "k2"]),
        (b"x", "é"),
    ]
    assert [orders.put(*each).queue_offset for each in given] == [0, 1, 2, 3]
    assert store.wait_dispatched()
    assert [each.body for each in store.read("orders", 0)] == [b"before", *[b"x"] * 3]


def test_nonsense_is_refused_before_anything_is_put(store: lakelog.Store) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"topic": "a/b"}, IllegalMessage),
        ({"topic": ""}, IllegalMessage),
        ({"topic": "t", "tags": "a||b"}, ValueError),
        ({"topic": "t", "tags": 5}, TypeError),
        ({"topic": "t", "queue": -1}, ValueError),
        ({"topic": "t", "queue": "1"}, TypeError),
    ]
    for named, error in wrong:
        with pytest.raises(error):
            store.producer(**named)


def test_a_body_that_is_none_is_refused(store: lakelog.Store) -> None:
    orders = store.producer("orders", queue=0)
    orders.put(b"")
    with pytest.raises(lakelog.PutRefused, match="not bytes"):
        orders.put("text")  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(lakelog.PutRefused, match="a key holds no space"):
        orders.put(b"", "a b")


def test_event_loops_have_one_as_well(tmp_path: Path) -> None:
    async def run() -> list[int]:
        async with lakelog.aio.open(tmp_path / "s") as store:
            orders = store.producer("orders", tags="a", queue=0)
            first = await orders.put(b"x", "k")
            many = await orders.put_many([b"y", b"z"])
            with pytest.raises(IllegalMessage):
                store.producer("a/b")
            return [first.queue_offset, *(each.queue_offset for each in many)]

    assert asyncio.run(run()) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["list", "arrow"])
def test_columns_become_messages(kind: str, tmp_path: Path) -> None:
    bodies = [b"body %d" % number for number in range(200)]
    with open_small(tmp_path) as store:
        results = store.put_columns(
            "t",
            pa.array(bodies) if kind == "arrow" else bodies,
            queue_ids=1,
            tags="T",
            keys=[f"k{number}" for number in range(200)],
            properties={"a": "b"},
        )
        assert [each.queue_offset for each in results] == list(range(200))
        assert store.wait_dispatched()
        found = store.get("t", 1, 0, 200).messages
        assert len(store.put_columns("t", [])) == len(store.put_batch([])) == 0
    assert [bytes(each.body) for each in found] == bodies
    assert (found[7].tags, found[7].keys, found[7].properties["a"]) == ("T", ["k7"], "b")


def test_columns_that_take_several_segments(tmp_path: Path) -> None:
    bodies = [b"%04d" % number * 50 for number in range(3 * SEGMENT // 250)]
    with open_small(tmp_path) as store:
        results = store.put_batch(MessageColumns("t", bodies, queue_ids=0, tags="a"))
        assert [each.queue_offset for each in results] == list(range(len(bodies)))
        found = [store.look_up(each.physical_offset) for each in results]
        assert [each.body for each in found] == bodies
        assert {each.tags for each in found} == {"a"}
    with read_small(tmp_path) as reader:
        assert [each.body for each in reader.scan()] == bodies
