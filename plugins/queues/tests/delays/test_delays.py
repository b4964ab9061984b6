"""Messages with a time of delivery: they come then, and once while nothing fails."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import Message, PutRefused, StoredMessage, aio
from lakelog.store.open import prepare
from lakelog_queues.store import delays_of
from lakelog_testing import FakeClock
from tests.support.waiting import until

HOUR_MS = 3_600_000
WAIT_MS = 60_000


def now_ms() -> int:
    """The time of the machine."""
    return time.time_ns() // 1_000_000


def bodies(store: lakelog.Store, topic: str = "orders") -> list[bytes]:
    """The bodies in queue 0 of a topic."""
    return [bytes(each.body) for each in store.get(topic, 0, 0, 1000).messages]


def awaited(store: lakelog.Store, offset: int, topic: str = "orders") -> StoredMessage:
    """The message at an offset of queue 0, once it is there."""
    found = store.get(topic, 0, offset, 1, wait_ms=WAIT_MS).messages
    assert found, "it is not delivered"
    return found[0]


@pytest.mark.both_ways
def test_a_message_comes_when_it_is_due_and_not_before(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "store") as store:
        begun_ms = now_ms()
        message = Message("orders", b"late", tags="t", keys=["k", "l"], queue_id=0, delay_ms=500)
        put = store.put(message)
        assert (put.topic, put.queue_id) == ("rmq_sys_wheel_timer", 0)
        assert message.topic == "orders"
        store.put(Message("orders", b"now", queue_id=0))
        assert bodies(store) == [b"now"]
        found = awaited(store, 1)
        assert found.store_timestamp_ms >= begun_ms + 500
        assert (found.body, found.tags, found.keys) == (b"late", "t", ["k", "l"])
        assert not {"REAL_TOPIC", "REAL_QID"} & found.properties.keys()
        assert [each.body for each in store.query("orders", "l")] == [b"late"]


@pytest.mark.both_ways
def test_every_put_of_messages_delays(tmp_path: Path) -> None:
    def message(body: bytes, **more: Any) -> Message:
        return Message("orders", body, queue_id=0, **more)

    async def beside() -> None:
        async with aio.open(tmp_path / "store") as store:
            await store.put(message(b"aio", delay_ms=400))

    with lakelog.open(tmp_path / "store") as store:
        store.put(message(b"put", deliver_at_ms=now_ms() + 100))
        store.put_async(message(b"async", delay_ms=200)).result()
        store.put_batch([message(b"now"), message(b"batch", delay_ms=300)])
        store.put_batch_async([message(b"at once", delay_ms=0)]).result()
        store.put(message(b"past", deliver_at_ms=now_ms() - 1))
        asyncio.run(beside())
        assert bodies(store)[:3] == [b"now", b"at once", b"past"]
        for offset, body in enumerate((b"put", b"async", b"batch", b"aio"), 3):
            assert awaited(store, offset).body == body


@pytest.mark.both_ways
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"delay_ms": -1}, "delay_ms is -1; give 0 or more"),
        ({"delay_ms": 73 * HOUR_MS}, "3 days"),
        ({"deliver_at_ms": now_ms() * 1000}, "since 1970"),
        ({"delay_ms": 5, "deliver_at_ms": now_ms()}, "give one of them"),
        ({"delay_ms": 5, "sys_flag": 4}, "transaction"),
        ({"delay_ms": 5, "sys_flag": 0x80}, "inner"),
    ],
)
def test_a_wrong_time_is_refused(tmp_path: Path, wrong: dict[str, Any], text: str) -> None:
    message = Message("orders", b"x", queue_id=0, **wrong)
    with lakelog.open(tmp_path / "store") as store:
        with pytest.raises(ValueError, match=text):
            store.put(message)
        with pytest.raises(ValueError, match=f"message 1 of the batch: .*{text}"):
            store.put_batch([Message("orders", b"x"), message])
        with pytest.raises(ValueError, match=text):
            store.put_async(message).result()
        assert store.max_offset == 0


def test_other_wrong_messages_are_refused_before_they_wait(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "store") as store:
        with pytest.raises(TypeError, match=r"delay_ms is 0\.5"):
            store.put(Message("orders", b"x", delay_ms=0.5))  # type: ignore[arg-type]  # a wrong type
        for wrong in (Message("a/b", b"", delay_ms=5), Message("t", b"", queue_id=-1, delay_ms=5)):
            with pytest.raises(PutRefused):
                store.put(wrong)
        with pytest.raises(PutRefused, match="TIMER_OUT_MS"):
            store.put(Message("t", b"", properties={"TIMER_OUT_MS": "5"}, delay_ms=5))


def test_a_queue_is_chosen_at_the_put(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "store") as store:
        for number in range(4):
            store.put(Message("orders", b"%d" % number, delay_ms=1))
        until(lambda: sum(each.max_offset for each in store.queues("orders")) == 4)
        assert [each.max_offset for each in store.queues("orders")] == [1] * 4


def test_a_test_moves_delays_and_retries_by_its_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    with lakelog.open(tmp_path / "store", clock=clock) as store:
        store.put(Message("orders", b"in an hour", queue_id=0, delay_ms=HOUR_MS))
        store.put(Message("orders", b"failing", queue_id=0))
        with store.subscribe("billing", "orders", invisible_ms=24 * HOUR_MS) as member:
            (failing,) = member.poll(1, WAIT_MS)
            assert member.nack(failing, delay_ms=2 * HOUR_MS)
            clock.advance(HOUR_MS - 1)
            assert bodies(store) == [b"failing"]
            clock.advance(1)
            (late,) = member.poll(1, WAIT_MS)
            assert late.message.body == b"in an hour"
            assert member.fetch() == []
            store.put(Message("orders", b"again", queue_id=0, delay_ms=HOUR_MS))
            assert awaited_count(store) == 2
            clock.advance(HOUR_MS)
            found = {bytes(each.message.body) for each in polled(member, 2)}
            assert found == {b"failing", b"again"}


def idle(store: lakelog.Store) -> bool:
    """Deliver all that is due."""
    delays = delays_of(store)
    assert delays is not None
    until(lambda: delays.deliver_due() > 0)
    return True


def has_thread() -> bool:
    """Whether this process delivers."""
    return any(each.name == "lakelog-delays" for each in threading.enumerate())


def polled(member: lakelog.GroupConsumer, count: int) -> list[lakelog.Delivery]:
    """So many messages, once they are there."""
    found: list[lakelog.Delivery] = []

    def has_all() -> bool:
        found.extend(member.poll(count, 1000))
        return len(found) == count

    until(has_all)
    return found


def awaited_count(store: lakelog.Store) -> int:
    """The length of the queue, after what is due was delivered."""
    store.wait_dispatched()
    return len(bodies(store))


def test_a_store_without_delays_has_no_thread_for_them(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "store") as store:
        store.put(Message("orders", b"now", queue_id=0))
        awaited(store, 0)
        assert not has_thread()
        store.put(Message("orders", b"late", queue_id=0, delay_ms=1))
        awaited(store, 1)
        assert has_thread()
    assert not has_thread()


def test_a_closed_store_delivers_after_the_next_open_and_nothing_again(tmp_path: Path) -> None:
    clock = FakeClock()
    with lakelog.open(tmp_path / "store", clock=clock) as store:
        for number in range(3):
            due = clock.now_ms() + HOUR_MS + number
            store.put(Message("orders", b"%d" % number, queue_id=0, deliver_at_ms=due))
        clock.advance(HOUR_MS)
        assert awaited(store, 0).body == b"0"
    clock.advance(1)
    for last in (1, 2, 2):
        with lakelog.open(tmp_path / "store", clock=clock) as store:
            assert awaited(store, last).body == b"%d" % last
            assert idle(store)
            assert bodies(store) == [b"%d" % each for each in range(last + 1)]
        clock.advance(1)


def test_a_recovery_delivers_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with lakelog.open(tmp_path / "store", clock=clock) as store:
        store.put(Message("orders", b"late", queue_id=0, deliver_at_ms=clock.now_ms() + 1000))
        end = store.max_offset
    until(lambda: now_ms() > clock.now_ms() + 1000)
    with prepare(tmp_path / "store", arguments={}).for_owner() as store:  # as lakelog.recover
        assert not has_thread()
    with lakelog.open(tmp_path / "store", mode="read") as store:
        assert store.max_offset == end
    with lakelog.open(tmp_path / "store") as store:
        awaited(store, 0)
