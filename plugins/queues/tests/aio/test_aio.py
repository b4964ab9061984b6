"""A store in an event loop: methods, order, cancellation, groups; the loop is never blocked."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import pytest

import lakelog
import lakelog.aio
from core.tests.store.support import SEGMENT, open_small
from lakelog import Delivery, Message, PutRefused, PutResult, PutStatus
from lakelog.aio import AsyncGroupConsumer, AsyncStore, PutThread
from lakelog.aio import open as open_async
from lakelog.errors import MissingIndex, StoreClosed
from lakelog.format.record_batch import RecordBatch
from plugins.queues.tests.groups.support import bodies as numbers_of
from plugins.queues.tests.groups.support import fill, open_store

SLOW_SECONDS = 0.1
SMALL: dict[str, Any] = {
    "plugins": [],
    "flush": "none",
    "segment_size_bytes": SEGMENT,
    "preallocate": False,
}


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in a loop that logs slow callbacks."""

    @wraps(test)
    def run(**given: Any) -> None:
        async def main() -> None:
            asyncio.get_running_loop().slow_callback_duration = SLOW_SECONDS
            await test(**given)

        asyncio.run(main(), debug=True)

    return run


@pytest.fixture(autouse=True)
def loop_never_stops(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No callback of any test here may be slow: asyncio's debug mode logs slow ones."""
    with caplog.at_level(logging.WARNING, "asyncio"):
        yield
    slow = [each.getMessage() for each in caplog.records if each.name == "asyncio"]
    assert [text for text in slow if "took" in text] == []


def small(path: Path, **more: Any) -> lakelog.aio.AsyncOpening:
    return lakelog.aio.open(path, **{**SMALL, **more})


def bodies(messages: Any) -> list[bytes]:
    return [bytes(each.body) for each in messages]


async def all_of(store: AsyncStore) -> list[bytes]:
    return [bytes(each.body) async for each in store.scan()]


# --- the methods ---------------------------------------------------------------------------------


OTHERWISE: dict[str, str] = {
    "Store.put_async": "put",
    "Store.put_batch_async": "put_batch",
    "Store.get_async": "get",
    "Store.read_async": "read",
    "Store.watch_async": "watch",
    "GroupConsumer.fetch": "poll, which waits only if it is told to",
    "GroupConsumer.nap_s": "for callers that wait by themselves, as AsyncGroupConsumer does",
    "GroupConsumer.forked": "called by Python's hook of forks",
    "Producer.bind": "called by the store",
    "Store.work": "it runs event loops itself, one in each worker of an asynchronous function",
}
"""Methods that asyncio has under another name, or not at all, with the reason."""


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("of", "loop"),
    [
        (lakelog.Store, AsyncStore),
        (lakelog.Consumer, lakelog.aio.AsyncConsumer),
        (lakelog.GroupConsumer, AsyncGroupConsumer),
        (lakelog.Producer, lakelog.aio.AsyncProducer),
    ],
)
def test_a_loop_has_all_methods(of: type, loop: type) -> None:
    assert {f"{of.__name__}.{each}" for each in public(of) - public(loop)} <= set(OTHERWISE)


@in_a_loop
async def test_offsets_and_what_a_store_is(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        assert (await store.min_offset(), await store.oldest_offset()) == (0, 0)
        result = await store.put(Message("t", b"", queue_id=0))
        assert await store.max_offset() == await store.flush() == await store.flushed_offset()
        assert await store.is_flushed_known()
        assert await store.wait_dispatched()
        assert await store.dispatched_offset() == result.end_offset
        assert (await store.dispatch_lag()).bytes == 0
        assert len(await store.queue_units("t", 0, 0, 1)) == 1
        with pytest.raises(MissingIndex):
            await store.query_offsets("t", "k")
        assert await store.earliest_time("t", 0) == result.store_timestamp_ms
        assert (store.read_only, store.puts_wait, store.recovery is None) == (False, False, False)
        assert store.dispatch_failure is None
        async with small(tmp_path, mode="read") as reader:
            assert reader.read_only
            assert not await reader.wait_flushed(result.end_offset + 1, timeout_ms=0)


@in_a_loop
async def test_messages_that_are_fetched_and_taken(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        await store.put_columns("t", [b"a", b"b"], queue_ids=0)
        await store.wait_dispatched()
        async with await store.consumer("g", "t", start="earliest") as consumer:
            assert consumer.take() is None
            assert await consumer.fetch()
            assert bodies(filter(None, (consumer.take(), consumer.take()))) == [b"a", b"b"]
            assert consumer.position(0) == 2
            assert not await consumer.fetch()


# --- putting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "flush"), [("owner", "inline"), ("attach", "none")])
@in_a_loop
async def test_many_tasks_put_at_once(tmp_path: Path, mode: str, flush: str) -> None:
    async with small(tmp_path, flush=flush) as owner:
        store = owner if mode == "owner" else await small(tmp_path)
        assert store.role == mode
        one = await store.put(Message("t", b"first", queue_id=0))
        assert (one.physical_offset, one.queue_offset) == (0, 0)
        puts = (store.put(Message("t", b"%03d" % n, queue_id=0)) for n in range(200))
        results = await asyncio.gather(*puts)
        assert [each.queue_offset for each in results] == list(range(1, 201))
        batch = await store.put_batch([Message("t", b"b", queue_id=0)] * 3)
        assert [each.queue_offset for each in batch] == [201, 202, 203]
        columns = await store.put_columns("t", [b"c", b"d"], queue_ids=0)
        end = columns[-1].end_offset
        assert await store.flush() == end
        assert await all_of(store) == [
            b"first",
            *(b"%03d" % n for n in range(200)),
            *[b"b"] * 3,
            b"c",
            b"d",
        ]
        if store is not owner:
            await store.close()


def test_puts_go_on_while_the_other_process_closes(tmp_path: Path) -> None:
    """No put waits for a successor, and none is lost."""
    other = open_small(tmp_path)

    async def work() -> None:
        async with small(tmp_path, attach={"take_over": False}) as store:
            assert store.role == "attach"
            puts = [
                asyncio.ensure_future(store.put_batch([Message("t", b"%03d" % n, queue_id=0)]))
                for n in range(300)
            ]
            await asyncio.to_thread(other.close)
            results = await asyncio.gather(*puts)
            assert [each.queue_offset for (each,) in results] == list(range(300))

    in_a_loop(work)()


# --- cancelling --------------------------------------------------------------------------------


@in_a_loop
async def test_others_go_on_when_one_is_cancelled(tmp_path: Path) -> None:
    """One that is cancelled before it begins is not put; others may have begun."""
    async with small(tmp_path) as store:
        never = asyncio.ensure_future(store.put(Message("t", b"-1")))
        never.cancel()
        puts = [
            asyncio.ensure_future(store.put(Message("t", b"%02d" % n, queue_id=0)))
            for n in range(50)
        ]
        await asyncio.sleep(0)
        for each in puts[::2]:
            each.cancel()
        done = await asyncio.gather(*puts, return_exceptions=True)
        others = [each for each in done[1::2] if isinstance(each, PutResult)]
        assert [each.status for each in others] == [PutStatus.PUT_OK] * 25
        with pytest.raises(asyncio.CancelledError):
            await never
        found = await all_of(store)
        assert b"-1" not in found
        assert [each for each in found if int(each) % 2] == [b"%02d" % n for n in range(1, 50, 2)]


@in_a_loop
async def test_a_follower_that_is_cancelled_ends(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        await store.put(Message("t", b"0", queue_id=0))
        seen: list[bytes] = []

        async def follow() -> None:
            async for each in store.read("t", 0, follow=True):
                seen.append(bytes(each.body))  # noqa: PERF401  # it never ends

        following = asyncio.ensure_future(follow())
        for count in (1, 2):
            while len(seen) < count:
                await asyncio.sleep(0.005)
            if count == 1:
                await store.put(Message("t", b"1", queue_id=0))
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        assert seen == [b"0", b"1"]


@in_a_loop
async def test_a_poll_that_is_cancelled_loses_nothing(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        for n in range(20):
            await store.put(Message("t", b"%02d" % n, queue_id=0))
        await store.wait_dispatched()
        consumer = await store.consumer("g", "t", start="earliest")
        for _ in range(5):
            poll = asyncio.ensure_future(consumer.poll(4))
            await asyncio.sleep(0.001)
            poll.cancel()
            await asyncio.wait([poll])
            if not poll.cancelled():  # it was there first
                await consumer.reset("earliest")
        found = [bytes(each.body) async for each in consumer.messages(follow=False)]
        assert found == [b"%02d" % n for n in range(20)]
        await consumer.close()


@in_a_loop
async def test_an_open_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    opening = asyncio.ensure_future(small(tmp_path).__aenter__())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    deadline = time.monotonic() + 10
    while (tmp_path / "abort").exists() or not (tmp_path / "checkpoint").exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


# --- reading -----------------------------------------------------------------------------------


@in_a_loop
async def test_the_ways_to_a_message(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        results = await store.put_batch(
            [Message("t", b"%d" % n, queue_id=0, tags="odd" if n % 2 else None) for n in range(9)]
        )
        await store.wait_dispatched()
        assert await store.topics() == ["t"]
        assert await store.queue_bounds("t", 0) == (0, 9)
        assert [each.queue_id for each in await store.queues("t")] == [0]
        assert bodies((await store.get("t", 0, 7)).messages) == [b"7", b"8"]
        assert [bytes(m.body) async for m in store.read("t", 0, 5, tags="odd")] == [b"5", b"7"]
        assert (await store.look_up(results[3].physical_offset)).body == b"3"
        pieces = [each async for each in store.scan_pieces()]
        assert [len(each) for each in pieces if isinstance(each, RecordBatch)] == [9]
        at = results[0].store_timestamp_ms
        assert await store.offset_by_time("t", 0, at) == 0
        assert await store.in_thread(lambda each: each.max_offset) == results[-1].end_offset
        assert await store.groups() == {}
        assert await store.disk() is None
        await store.delete_topic("t")
        assert await store.topics() == []


@in_a_loop
async def test_a_get_waits_for_a_message(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        waiting = [asyncio.ensure_future(store.get("t", 0, 0, wait_ms=20_000)) for _ in range(50)]
        await asyncio.sleep(0.2)  # more than there are threads
        await store.put(Message("t", b"x", queue_id=0))
        for each in waiting:
            assert bodies((await each).messages) == [b"x"]


@in_a_loop
async def test_a_consumer(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        async with await store.consumer("g", "t", start="earliest", commit="batch") as consumer:
            assert await consumer.poll(wait_ms=20) == []
            put = asyncio.get_running_loop().call_later(
                0.05,
                asyncio.ensure_future,
                store.put_batch([Message("t", b"%d" % n, queue_id=0) for n in range(5)]),
            )
            found: list[bytes] = []
            async for each in consumer.messages():
                found.append(bytes(each.body))
                if len(found) == 3:
                    break
            assert found == [b"0", b"1", b"2"]
            assert put.when()
            assert await consumer.lag() == {0: 2}
        assert await store.groups() == {"g": {"t": {0: 3}}}
        async with await store.consumer("g", "t") as consumer:
            rest = [bytes(m.body) async for m in consumer.messages(follow=False)]
            assert rest == [b"3", b"4"]
            assert await consumer.committed() == {0: 3}
            await consumer.commit()
            await consumer.seek(0, 1)
            assert bodies(await consumer.poll(2)) == [b"1", b"2"]


# --- the end -----------------------------------------------------------------------------------


def test_what_was_given_is_put_before_a_close(tmp_path: Path) -> None:
    async def work() -> None:
        store = await small(tmp_path)
        puts = [asyncio.ensure_future(store.put(Message("t", b"%d" % n))) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert all(each.status is PutStatus.PUT_OK for each in await asyncio.gather(*puts))
        with pytest.raises(PutRefused, match="closed"):
            await store.put(Message("t", b"late"))
        with pytest.raises(StoreClosed):
            await store.look_up(0)
        await store.close()

    in_a_loop(work)()
    assert not [each for each in threading.enumerate() if each.name == "lakelog-aio"]


@in_a_loop
async def test_puts_that_wait_for_their_turn_are_put_before_a_close(tmp_path: Path) -> None:
    store, busy, go_on = await small(tmp_path), threading.Event(), threading.Event()

    def begin(message: Message) -> Any:
        busy.set()
        assert go_on.wait(60)
        return store._store.put_async(message)

    first = asyncio.ensure_future(store._put_thread.put(begin, Message("t", b"first")))
    await asyncio.to_thread(busy.wait, 60)
    puts = [asyncio.ensure_future(store.put(Message("t", b"%d" % n))) for n in range(5)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    while not store._put_thread._closed:
        await asyncio.sleep(0.001)
    go_on.set()
    await closing
    done = await asyncio.wait_for(asyncio.gather(first, *puts), 10)
    assert {each.status for each in done} == {PutStatus.PUT_OK}


# --- members of groups, and the queues that have new messages ---


T = TypeVar("T")
SETTINGS = {"flush": "none", "segment_size_bytes": 1 << 20, "preallocate": False}


async def after(iterator: AsyncIterator[T]) -> T:
    return await asyncio.wait_for(anext(iterator), 60)


def test_members_of_one_loop_share(tmp_path: Path) -> None:
    seen: list[int] = []

    async def work(member: AsyncGroupConsumer) -> None:
        async for each in member:
            await member.ack(each)
            seen.append(int(bytes(each.message.body)))  # then the cancellation cuts off no ack

    async def main() -> None:
        async with open_async(tmp_path, **SETTINGS) as store:
            async with (
                await store.subscribe("g", "t", start="earliest") as one,
                await store.subscribe("g", "t", start="earliest") as two,
            ):
                tasks = [asyncio.create_task(work(each)) for each in (one, two)]
                async with asyncio.timeout(60):
                    while len(seen) < 100:
                        await asyncio.sleep(0.01)
                    while sorted(one.assigned() + two.assigned()) != [("t", n) for n in range(4)]:
                        await asyncio.sleep(0.01)
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert sum((await store.groups())["g"]["t"].values()) == 100

    with open_store(tmp_path) as store:
        fill(store, 100)
    asyncio.run(main())
    assert sorted(seen) == list(range(100))


def test_outcomes_and_a_cancelled_poll(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            open_async(tmp_path, **SETTINGS) as store,
            await store.subscribe("g", "t", start="earliest") as member,
        ):
            polling = asyncio.create_task(member.poll(4))
            await asyncio.sleep(0)  # its thread runs by now, and cannot be stopped
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            found: list[Delivery] = []
            async with asyncio.timeout(30):  # less than the invisible time
                while len(found) < 4:
                    found += await member.poll(4, wait_ms=100)
            assert sorted(numbers_of(found)) == [0, 1, 2, 3]
            assert await member.renew(found[0])
            assert await member.ack(*found[1:])
            assert await member.nack(found[0], 0)
            (again,) = await member.poll(wait_ms=60_000)
            assert (again.topic, again.attempt, again.origin_topic) == ("%RETRY%g", 2, "t")
            assert await member.ack(again)
            await member.commit()
            assert (await store.groups())["g"]["%RETRY%g"] == {0: 1}

    with open_store(tmp_path) as store:
        fill(store, 4)
    asyncio.run(main())


def test_being_told_which_queues_have_new_messages(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_async(tmp_path, **SETTINGS)
        told = store.watch("t", since={("t", 0): 1})
        assert await after(told) == {("t", 0): 3, ("t", 1): 2}
        waiting = asyncio.create_task(after(told))
        await store.put(Message("other", b"", queue_id=0))
        await store.put(Message("t", b"", queue_id=7))
        assert await waiting == {("t", 7): 1}
        await store.put_batch([Message("t", b"", queue_id=n % 2) for n in range(4)])
        grown: dict[tuple[str, int], int] = {}
        while grown != {("t", 0): 5, ("t", 1): 4}:
            grown |= await after(told)
        ends = asyncio.create_task(anext(told, None))
        await store.close()
        assert await asyncio.wait_for(ends, 60) is None

    with open_store(tmp_path) as store:
        fill(store, 5, queues=2)
    asyncio.run(main())


@in_a_loop
async def test_a_put_that_is_cancelled_while_others_begin_is_withdrawn(tmp_path: Path) -> None:
    busy, go_on, begun = threading.Event(), threading.Event(), list[str]()

    def begin(what: str) -> Any:
        begun.append(what)
        busy.set()
        go_on.wait(60)
        raise ValueError(what)

    thread = PutThread()
    first = asyncio.ensure_future(thread.put(begin, "first"))
    await asyncio.to_thread(busy.wait, 60)
    second = asyncio.ensure_future(thread.put(begin, "second"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(ValueError, match="first"):
        await first
    await asyncio.to_thread(thread.close)
    assert begun == ["first"]
