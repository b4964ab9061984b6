"""Puts of an attached process: as the owner's own, in results, errors and durability."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from core.tests.attach.support import an_owned_hub, until
from lakelog import Message, MessageColumns, PutResult, PutStatus, Store
from lakelog.attach.producer import Producer, connect
from lakelog.errors import PutRefused, StoreFailed
from lakelog.ring.layout import AT_STATE
from lakelog.ring.writing import RingWriter
from lakelog.testing.crash.opener import owned_by
from lakelog.testing.descriptors import open_files


@contextmanager
def attached(
    path: Path, attach: dict[str, Any] | None = None, **more: Any
) -> Iterator[tuple[Store, Producer]]:
    with an_owned_hub(path, attach, **more) as (store, _):
        producer = connect(path, timeout_ms=0)
        try:
            yield store, producer
        finally:
            producer.close()


def some(count: int, size: int = 100) -> list[Message]:
    return [
        Message(f"t{number % 3}", b"%06d" % number + bytes(size - 6), queue_id=number % 2)
        for number in range(count)
    ]


def the_same(store: Store, messages: Sequence[Message], results: Sequence[PutResult]) -> None:
    """Each result says where its message is, and nothing else is in the log."""
    assert len(messages) == len(results)
    for message, result in zip(messages, results, strict=True):
        found = store.look_up(result.physical_offset)
        assert (found.topic, found.queue_id, bytes(found.body)) == (
            message.topic,
            message.queue_id,
            bytes(message.body),
        )
        assert found.queue_offset == result.queue_offset
        assert result.message_id == found.message_id
        assert result.status is PutStatus.PUT_OK
    assert len(list(store.scan())) == len(messages)


@pytest.mark.parametrize("more", [{}, {"record_crc": True}, {"flush": "inline"}])
def test_single_messages(tmp_path: Path, more: dict[str, Any]) -> None:
    messages = some(60)
    with attached(tmp_path, **more) as (store, producer):
        the_same(store, messages, [producer.put(message) for message in messages])
        if more.get("flush") == "inline":
            assert store.flushed_offset == store.max_offset


@pytest.mark.parametrize("count", [1, 2, 13, 60, 700])
def test_batches(tmp_path: Path, count: int) -> None:
    messages = some(count)
    with attached(tmp_path) as (store, producer):
        the_same(store, messages, producer.put_batch(messages))
        assert producer.put_batch([]) == []


def test_columns(tmp_path: Path) -> None:
    columns = MessageColumns("t", [b"%d" % number for number in range(500)], queue_ids=3)
    with attached(tmp_path) as (store, producer):
        results = producer.put_batch(columns)
        assert [each.queue_offset for each in results] == list(range(500))
        assert [bytes(each.body) for each in store.scan()] == list(columns.bodies)


def test_a_batch_larger_than_the_ring_goes_in_pieces(tmp_path: Path) -> None:
    messages = some(2000)
    with attached(tmp_path) as (store, producer):
        assert producer._line.link.writer.largest_bytes < 2000 * 100
        the_same(store, messages, producer.put_batch(messages))
        producer.put_batch_async(messages).result(10)
        assert len(list(store.scan())) == 4000


def test_a_body_of_the_largest_size_always_fits(tmp_path: Path) -> None:
    with attached(tmp_path, max_message_size_bytes=300_000) as (store, producer):
        for _ in range(5):
            found = producer.put(Message("t", bytes(300_000), queue_id=0))
            assert len(store.look_up(found.physical_offset).body) == 300_000
        with pytest.raises(PutRefused, match="the body takes 300001 bytes") as caught:
            producer.put(Message("t", bytes(300_001)))
        assert caught.value.status is PutStatus.MESSAGE_SIZE_EXCEEDED


def test_many_threads_share_one_ring(tmp_path: Path) -> None:
    def work(number: int) -> list[int]:
        topic = f"t{number}"
        return [
            producer.put(Message(topic, b"%d" % at, queue_id=0)).queue_offset for at in range(60)
        ]

    with attached(tmp_path) as (store, producer):
        with ThreadPoolExecutor(8) as pool:
            for offsets in pool.map(work, range(8)):
                assert offsets == list(range(60))
        for number in range(8):
            bodies = [bytes(each.body) for each in store.scan() if each.topic == f"t{number}"]
            assert bodies == [b"%d" % at for at in range(60)]


def test_several_producers(tmp_path: Path) -> None:
    with attached(tmp_path) as (store, one):
        two = connect(tmp_path)
        for number in range(50):
            assert one.put(Message("t", b"one", queue_id=0)).queue_offset == 2 * number
            assert two.put(Message("t", b"two", queue_id=0)).queue_offset == 2 * number + 1
        two.close()
        assert len(list(store.scan())) == 100


# --- in the background ---


def test_futures_come_in_order(tmp_path: Path) -> None:
    messages = [Message("t", b"%d" % number, queue_id=0) for number in range(3000)]
    with attached(tmp_path) as (store, producer):
        futures = [producer.put_async(message) for message in messages]
        the_same(store, messages, [future.result(10) for future in futures])
        assert [future.result().queue_offset for future in futures] == list(range(3000))


def test_futures_of_batches(tmp_path: Path) -> None:
    batches = [some(100) for _ in range(20)]
    with attached(tmp_path) as (store, producer):
        futures = [producer.put_batch_async(batch) for batch in batches]
        results = [each for future in futures for each in future.result(10)]
        the_same(store, [each for batch in batches for each in batch], results)


def test_futures_can_be_awaited(tmp_path: Path) -> None:
    async def put(producer: Producer) -> list[int]:
        single = [producer.put_async(Message("t", b"x", queue_id=0)) for _ in range(100)]
        batch = producer.put_batch_async([Message("t", b"x", queue_id=1)] * 5)
        assert len(await batch) == 5
        return [(await each).queue_offset for each in single]

    with attached(tmp_path) as (_, producer):
        assert asyncio.run(put(producer)) == list(range(100))


def test_one_bad_message_leaves_the_others_alone(tmp_path: Path) -> None:
    with attached(tmp_path) as (store, producer):
        bad = Message("a/b", b"x")
        futures = [producer.put_async(each) for each in [*some(5), bad, *some(5)]]
        with pytest.raises(PutRefused, match="cannot name a directory"):
            futures[5].result(10)
        assert all(each.result(10) for at, each in enumerate(futures) if at != 5)
        with pytest.raises(PutRefused, match="message 1 of the batch"):
            producer.put_batch([*some(1), bad])
        with pytest.raises(PutRefused, match="message 1 of the batch"):
            producer.put_batch_async([*some(1), bad]).result(10)
        assert len(list(store.scan())) == 10


def test_a_callback_may_put(tmp_path: Path) -> None:
    """It runs in the thread that looks for answers, which must not wait for itself."""
    done = Event()
    left = [200]

    def again(_: Any) -> None:
        if left[0]:
            left[0] -= 1
            if left[0] % 2:
                producer.put(Message("t", b"sync"))
            producer.put_async(Message("t", bytes(3000))).add_done_callback(again)
        else:
            done.set()

    with attached(tmp_path) as (store, producer):
        producer.put_async(Message("t", b"first")).add_done_callback(again)
        others = [producer.put_async(Message("t", bytes(3000))) for _ in range(300)]
        assert done.wait(20)
        assert all(each.result(10) for each in others)
        assert len(list(store.scan())) == 1 + 200 + 100 + 300


# --- a full ring ---


def test_a_full_ring_makes_producers_wait(tmp_path: Path) -> None:
    gate = Event()
    with attached(tmp_path) as (store, producer):
        log = owned_by(store).log
        append = log._append
        log._append = lambda batch, put: (gate.wait(10), append(batch, put))[1]  # type: ignore[method-assign]  # a slow disk
        sent = list[Any]()

        def fill() -> None:
            for _ in range(60):
                sent.append(producer.put_batch_async([Message("t", bytes(4000), queue_id=0)] * 2))

        filling = Thread(target=fill)
        filling.start()
        time.sleep(0.3)
        assert 3 < len(sent) < 40
        gate.set()
        filling.join(10)
        offsets = [each.queue_offset for future in sent for each in future.result(10)]
        assert offsets == list(range(120))


def test_a_callback_may_put_while_another_thread_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for room has the turn, and all answers come at once: no further ones tell of it."""
    with attached(tmp_path) as (_, producer):
        line, answered = producer._line, Event()
        settle = line._settle_answered
        monkeypatch.setattr(line, "_settle_answered", lambda: answered.wait(10) and settle())
        two, offsets = [Message("t", bytes(4000), queue_id=0)] * 2, list[int]()
        first = producer.put_batch_async(two)
        first.add_done_callback(lambda _: offsets.append(producer.put(two[0]).queue_offset))
        until(lambda: line._turns._looker != 0)
        filling = Thread(target=lambda: [producer.put_batch_async(two) for _ in range(40)])
        filling.daemon = True  # a failure ends
        filling.start()
        until(lambda: getattr(line._entrance._room, "sleeper", None) is not None)
        until(lambda: is_all_answered(line.link.writer))
        answered.set()
        filling.join(10)
        assert not filling.is_alive()
        until(lambda: len(offsets) == 1)


def test_a_callback_may_put_in_the_thread_that_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind what that thread is putting, which has the turn."""
    with attached(tmp_path) as (_, producer):
        monkeypatch.setattr(producer._watch, "add", lambda _: None)  # nobody else looks
        two, begun = [Message("t", bytes(4000), queue_id=0)] * 2, 0
        expected, offsets = list[int](), dict[int, int]()

        def again(_: Any) -> None:
            number = len(expected)
            expected.append(2 * begun + number)
            offsets[number] = producer.put(two[0]).queue_offset

        for begun in range(1, 41):
            future = producer.put_batch_async(two)
            if begun in (1, 3):
                future.add_done_callback(again)
        producer.close()
        assert [offsets[0], offsets[1]] == expected


def is_all_answered(writer: RingWriter) -> bool:
    states = [writer._words[(each.at >> 3) + AT_STATE] for each in writer._tickets]
    return len(states) > 1 and all(states)


# --- refusals ---


def test_a_pause_refuses_with_its_own_words(tmp_path: Path) -> None:
    with attached(tmp_path) as (store, producer):
        health = owned_by(store).health
        health.pause("the disk is full (99 %)")
        for put in (
            lambda: producer.put(Message("t", b"x")),
            lambda: producer.put_batch(some(100)),
            lambda: producer.put_async(Message("t", b"x")).result(10),
        ):
            with pytest.raises(PutRefused) as caught:
                put()
            assert str(caught.value) == str(health.refused())
            assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        health.unpause()
        assert producer.put(Message("t", b"x")).physical_offset == 0


def test_a_failed_write_fails_those_who_wait_and_refuses_the_rest(tmp_path: Path) -> None:
    with attached(tmp_path) as (store, producer):
        owned = store._owned
        assert owned is not None
        assert producer.put(Message("t", b"x")).size > 0
        error = owned.health.fail(OSError(5, "Input/output error"))
        with pytest.raises(PutRefused, match=r"the store failed: .+Input/output error"):
            producer.put(Message("t", b"x"))
        with pytest.raises(StoreFailed, match="Input/output error"):
            producer.flush()
        assert "Input/output error" in str(error)
        with pytest.raises(StoreFailed):
            store.close()


def test_a_failed_sync_is_told_as_such(tmp_path: Path) -> None:
    with attached(tmp_path, flush="inline") as (store, producer):
        owned = store._owned
        assert owned is not None

        def sync() -> int:
            raise owned.health.fail(OSError(5, "Input/output error"))

        owned.log.sync = sync  # type: ignore[method-assign]  # a disk that fails
        with pytest.raises(StoreFailed) as caught:
            producer.put(Message("t", b"x"))
        assert str(caught.value) == str(owned.health.failed())
        with pytest.raises(StoreFailed):
            store.close()


def test_a_closed_producer_refuses(tmp_path: Path) -> None:
    with attached(tmp_path) as (store, producer):
        late = [producer.put_async(Message("t", b"x")) for _ in range(500)]
        producer.close()
        assert all(each.done() and each.result().size > 0 for each in late)
        for put in (producer.put, producer.put_async):
            with pytest.raises(PutRefused, match="the store is closed"):
                put(Message("t", b"x"))
        producer.close()
        assert len(list(store.scan())) == 500


# --- the rest ---


def test_flush_makes_durable(tmp_path: Path) -> None:
    with attached(tmp_path) as (store, producer):
        end = producer.put_batch(some(100))[-1].end_offset
        assert store.flushed_offset < end
        assert producer.flush() == end == store.flushed_offset


def test_confirmed_follows(tmp_path: Path) -> None:
    with attached(tmp_path) as (store, producer):
        for _ in range(20):
            assert producer.put(Message("t", b"x")).end_offset == store.max_offset


def test_the_owner_sees_who_is_attached(tmp_path: Path) -> None:
    import os

    with an_owned_hub(tmp_path) as (_, hub):
        assert hub.clients() == ()
        producer = connect(tmp_path)
        producer.put_batch(some(10))
        (seen,) = hub.clients()
        assert (seen.pid, seen.uid, seen.entries, seen.messages) == (
            os.getpid(),
            os.geteuid(),
            1,
            10,
        )
        producer.close()
        until(lambda: hub.clients() == ())


def test_the_memory_of_who_is_gone_is_freed(tmp_path: Path) -> None:
    def maps() -> int:
        return Path("/proc/self/maps").read_text().count("lakelog-ring")

    def descriptors() -> int:
        """But for those of files: the queues open some."""
        kinds = ("socket:", "anon_inode:", "/memfd:")
        return sum(name.startswith(kinds) for _, name in open_files())

    with an_owned_hub(tmp_path) as (_, hub):
        gc.collect()  # of earlier tests
        before, open_before = maps(), descriptors()
        for _ in range(5):
            producer = connect(tmp_path)
            producer.put_batch(some(100))
            producer.close()
            del producer
        until(lambda: hub.clients() == ())
        gc.collect()  # the producers' own ends
        until(lambda: maps() == before)
        until(lambda: descriptors() == open_before)
