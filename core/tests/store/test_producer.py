"""Puts of one topic by :class:`lakelog.Producer`, with compiled code where it is, and without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakelog
import lakelog.aio
from lakelog.errors import IllegalMessage


@pytest.fixture(params=["none", "auto"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lakelog.Store]:
    with lakelog.open(tmp_path / "s", accelerator=request.param, queues_per_topic=3) as opened:
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


@pytest.mark.parametrize(
    ("body", "keys"), [(bytearray(b"x"), None), (memoryview(b"x"), ["k1", "k2"]), (b"x", "é")]
)
def test_unusual_bodies_and_keys_are_put_too(store: lakelog.Store, body: Any, keys: Any) -> None:
    orders = store.producer("orders", queue=0)
    orders.put(b"before")
    assert orders.put(body, keys).queue_offset == 1
    assert store.wait_dispatched()
    found = store.read("orders", 0)
    assert [each.body for each in found] == [b"before", b"x"]


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"topic": "a/b"}, IllegalMessage),
        ({"topic": ""}, IllegalMessage),
        ({"topic": "t", "tags": "a||b"}, ValueError),
        ({"topic": "t", "tags": 5}, TypeError),
        ({"topic": "t", "queue": -1}, ValueError),
        ({"topic": "t", "queue": "1"}, TypeError),
    ],
)
def test_nonsense_is_refused_before_anything_is_put(
    store: lakelog.Store, named: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        store.producer(**named)


def test_a_body_that_is_none_is_refused(store: lakelog.Store) -> None:
    orders = store.producer("orders", queue=0)
    orders.put(b"")
    with pytest.raises(lakelog.PutRefused, match="not bytes"):
        orders.put("text")  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(lakelog.PutRefused, match="a key holds no space"):
        orders.put(b"", "a b")


def test_a_reader_refuses_its_puts(store: lakelog.Store) -> None:
    store.put(lakelog.Message("orders", b""))
    with lakelog.open(store.path, mode="read") as reader:
        orders = reader.producer("orders")
        with pytest.raises(lakelog.PutRefused):
            orders.put(b"")
        with pytest.raises(lakelog.PutRefused):
            orders.put_many([b""])


def test_a_closed_store_refuses_its_puts(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "s") as store:
        orders = store.producer("orders")
    with pytest.raises(lakelog.LakelogError, match="closed"):
        orders.put(b"")


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
