"""Many puts at once, of every kind: each message once, in order; by producers and columns too."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

import lakelog
import lakelog.aio
from core.tests.registry.samples import plugin
from core.tests.store.support import SEGMENT, bodies, fill, open_small, read_small, segments
from lakelog import Message, PutRefused, PutResult, PutStatus, Store
from lakelog.builtin import InlineFlush
from lakelog.errors import IllegalMessage, StoreError
from lakelog.hooks import Outcome
from lakelog.message import MessageColumns
from lakelog.registry import Registry
from lakelog_testing import count_hook_calls

pytestmark = pytest.mark.both_ways


def test_threads_of_every_kind_of_put(tmp_path: Path) -> None:
    """Every message is there once, and each thread's in the order in which it put them."""
    rounds = 60

    def run(store: Store, name: int) -> list[PutResult]:
        results: list[PutResult] = []
        numbers = iter(range(10**6))

        def message() -> Message:
            return Message("t", b"%d %d" % (name, next(numbers)), queue_id=name % 2)

        for _ in range(rounds):
            results.append(store.put(message()))
            futures = [store.put_async(message()) for _ in range(5)]
            results += [each.result() for each in futures]
            results += store.put_batch([message() for _ in range(10)])
        return results

    with open_small(tmp_path, preallocate=True) as store:
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda name: run(store, name), range(4)))
        found = list(store.scan())
        assert store.max_offset == found[-1].physical_offset + found[-1].size
        assert store.wait_dispatched()
        assert [store.queue_bounds("t", queue) for queue in (0, 1)] == [(0, len(found) // 2)] * 2
    assert len(found) == 4 * rounds * 16
    by_thread: dict[int, list[tuple[int, int]]] = defaultdict(list)
    by_queue: dict[int, list[int]] = defaultdict(list)
    for each in found:
        name, number = map(int, each.body.split())
        by_thread[name].append((number, each.physical_offset))
        by_queue[each.queue_id].append(each.queue_offset)
    for name, results in enumerate(done):
        assert by_thread[name] == list(enumerate(each.physical_offset for each in results))
    assert by_queue == {queue: list(range(2 * rounds * 16)) for queue in (0, 1)}


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (Message("a/b", b""), PutStatus.MESSAGE_ILLEGAL),
        (Message("t", bytes(SEGMENT)), PutStatus.MESSAGE_SIZE_EXCEEDED),
        (
            Message("t", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}),
            PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
        ),
    ],
)
@pytest.mark.parametrize("flush", ["none", "inline"])
def test_one_bad_message_of_many_fails_alone(
    bad: Message, status: PutStatus, flush: str, tmp_path: Path
) -> None:
    with open_small(tmp_path, light_queues=True, max_light_queues=1, flush=flush) as store:
        futures = [store.put_async(Message("t", b"%d" % number)) for number in range(50)]
        refused = store.put_async(bad)
        futures += [store.put_async(Message("t", b"%d" % number)) for number in range(50, 99)]
        offsets = [each.result(timeout=10).physical_offset for each in futures]
        assert offsets == sorted(offsets)
        error = refused.exception(timeout=60)
        assert isinstance(error, PutRefused)
        assert error.status is status
        assert bodies(store.scan()) == [b"%d" % number for number in range(99)]


def test_closing_while_others_put(tmp_path: Path) -> None:
    """Each put is in the log with a result, or refused; none waits for ever."""
    store = open_small(tmp_path, preallocate=True)
    started = threading.Event()
    ends: list[PutStatus] = []

    def run(name: int) -> int:
        done = 0
        try:
            while True:
                started.set()
                done += store.put(Message("t", b"")).status is PutStatus.PUT_OK
                done += store.put_async(Message("t", b"")).result(timeout=20).status.in_log
        except PutRefused as error:
            ends.append(error.status)
        return done

    with ThreadPoolExecutor(4) as pool:
        counts = [pool.submit(run, name) for name in range(4)]
        started.wait()
        time.sleep(0.1)
        store.close()
        total = sum(each.result() for each in counts)
    with read_small(tmp_path) as reader:
        assert len(list(reader.scan())) == total
    assert ends == [PutStatus.SERVICE_NOT_AVAILABLE] * 4


def test_no_hook_is_called_per_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled: list[int] = []

    def note(start_offset: int) -> None:
        rolled.append(start_offset)

    observer = plugin(lakelog_segment_rolled=note)
    registry = Registry.load([observer], {})
    monkeypatch.setattr(Registry, "load", lambda *_: registry)
    with open_small(tmp_path) as store:
        with count_hook_calls(registry) as calls:
            store.put(Message("t", b""))
            store.put_batch([Message("t", b"")] * 20)
            store.put_async(Message("t", b"")).result()
            list(store.scan())
            store.look_up(0)
            assert calls == []
            fill(store, 100)
        assert set(calls) == {"lakelog_segment_rolled"}
        assert rolled == [int(each.name) for each in segments(tmp_path)[1:]]
        assert len(calls) == len(rolled)


@pytest.mark.parametrize("attached", [False, True])
def test_it_is_refused_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attached: bool
) -> None:
    heard, there, submit = Queue[str](), Event(), InlineFlush.submit

    def submit_slowly(self: InlineFlush, end_offset: int, wait: bool) -> Outcome:
        there.wait(20)  # until the callback is there
        return submit(self, end_offset, wait)

    def close(_: object) -> None:
        try:
            opened.close()
        except StoreError as error:
            heard.put(str(error))

    monkeypatch.setattr(InlineFlush, "submit", submit_slowly)
    with (
        open_small(tmp_path, flush="inline") as owner,
        open_small(tmp_path) if attached else nullcontext(owner) as opened,
    ):
        opened.put_async(Message("t", b"x")).add_done_callback(close)
        there.set()
        assert "in a callback of a put" in heard.get(timeout=20)
        assert opened.put(Message("t", b"y")).size > 0
    with open_small(tmp_path) as again:
        assert again.recovery is not None
        assert again.recovery.clean


def test_whoever_has_the_result_at_once_may_close_it(tmp_path: Path) -> None:
    """No thread answers that would wait for itself."""
    store = open_small(tmp_path, flush="none")
    store.put_async(Message("t", b"x")).add_done_callback(lambda _: store.close())
    with open_small(tmp_path) as again:
        assert bodies(again.scan()) == [b"x"]


def test_puts_that_are_submitted_together_end_with_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync that covers the first of them may have begun before the last was appended."""
    begun, go_on, submitted = Event(), Event(), list[int]()

    def submit(_self: InlineFlush, end_offset: int, wait: bool) -> Outcome:
        assert wait
        submitted.append(end_offset)
        begun.set()
        go_on.wait(20)
        return PutStatus.PUT_OK

    monkeypatch.setattr(InlineFlush, "submit", submit)
    with open_small(tmp_path, flush="inline") as store:
        first = store.put_async(Message("t", b"first"))
        assert begun.wait(20)
        rest = [store.put_async(Message("t", b"rest")) for _ in range(5)]
        go_on.set()
        ends = [each.result(20).end_offset for each in (first, *rest)]
    assert submitted == [ends[0], ends[-1]]


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
    with pytest.raises(TypeError, match="body is 'text'"):
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
