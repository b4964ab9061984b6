"""Delay levels: never early, in order, once while nothing fails, again after a failure."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import PutRefused, StoredMessage
from lakelog.errors import ReadFailed, StoreFailed
from lakelog.results import PutStatus
from lakelog_broker.broker import Broker
from lakelog_broker.settings import BrokerSettings
from lakelog_queues.delays.delivering import BATCH, RETRY_MS, Delays
from lakelog_queues.store import QueueParts, delays_of
from lakelog_rocketmq.fastjson import parse_object
from plugins.broker.tests.support import (
    OnRequest,
    SetClock,
    bodies,
    broker_over,
    put,
    save,
    set_clocks,
    settle,
)


def levels_of(broker: OnRequest, clock: SetClock) -> Delays:
    """The delays of a broker, with another clock."""
    set_clocks(broker, clock)
    return broker.delays.levels


def due_ms(store: lakelog.Store, level: int, queue_offset: int = 0) -> int:
    """When a waiting message is due."""
    units = store.queue_units("SCHEDULE_TOPIC_XXXX", level - 1, queue_offset, 1)
    return int(units.tags_codes[0])


def test_a_message_comes_when_it_is_due_and_not_before(store: lakelog.Store) -> None:
    broker = broker_over(store)
    put(broker, b"late", DELAY="2", TAGS="t")
    due = due_ms(store, 2)
    clock = SetClock(due - 1)
    delays = levels_of(broker, clock)
    assert delays.deliver_due() == due
    assert bodies(store, "Orders") == []
    clock.now_ms = due
    settle(delays, clock)
    assert bodies(store, "Orders") == [b"late"]
    (found,) = store.read("Orders", 0)
    assert found.tags == "t"
    assert not {"DELAY", "REAL_TOPIC"} & found.properties.keys()


def test_a_level_beyond_the_last_is_the_last(store: lakelog.Store) -> None:
    broker = broker_over(store)
    put(broker, b"late", DELAY="19")
    clock = SetClock(due_ms(store, 18))
    settle(levels_of(broker, clock), clock)
    assert bodies(store, "Orders") == [b"late"]


def test_batches_of_several_levels_all_come_in_order(store: lakelog.Store) -> None:
    broker = broker_over(store)
    count = 2 * BATCH + 3
    for number in range(count):
        put(broker, b"%d" % number, DELAY="1")
        put(broker, b"%d" % number, topic="Others", DELAY="3")
    clock = SetClock(due_ms(store, 3, count - 1))
    settle(levels_of(broker, clock), clock)
    expected = [b"%d" % number for number in range(count)]
    assert bodies(store, "Orders") == bodies(store, "Others") == expected


def test_saved_progress_is_as_rocketmq_reads_it_and_other_delivers_again(
    store: lakelog.Store,
) -> None:
    put(broker_over(store), b"one", DELAY="1")
    put(broker_over(store), b"two", DELAY="18")
    clock = SetClock(due_ms(store, 1))
    settle(levels_of(broker_over(store), clock), clock)
    broker = broker_over(store)
    settle(levels_of(broker, clock), clock)
    assert bodies(store, "Orders") == [b"one", b"one"]
    save(broker)
    content = parse_object((Path(store.path) / "config" / "delayOffset.json").read_bytes())
    assert content["offsetTable"] == {"1": 1}
    settle(levels_of(broker_over(store), clock), clock)
    assert bodies(store, "Orders") == [b"one", b"one"]


def test_a_refused_message_waits_while_others_come(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = broker_over(store)
    for body in (b"big", b"small"):
        put(broker, body, DELAY="1")
    clock = SetClock(due_ms(store, 1, 1))
    delays = levels_of(broker, clock)
    is_full = True

    def refusing(message: lakelog.Message) -> object:
        if is_full and message.body == b"big":
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
        return store.put(message)

    monkeypatch.setattr(broker.delays.access, "put", refusing)
    for _ in range(3):
        delays.deliver_due()
        clock.now_ms += RETRY_MS
    assert bodies(store, "Orders") == [b"small"]
    assert len(caplog.records) == 1
    save(broker)
    assert delays._saved.get(1, 0) == 0  # the message that waits counts
    is_full = False
    delays.deliver_due()
    assert bodies(store, "Orders") == [b"small", b"big"]
    save(broker)
    assert delays._saved[1] == 2


def test_a_message_that_cannot_be_read_now_comes_later(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, errors = broker_over(store), iter([OSError("the disk is away")])
    look_up = broker.delays.access.look_up

    def failing_once(offset: int) -> StoredMessage:
        for error in errors:
            raise ReadFailed("it cannot be read", path=store.path, error=error)
        return look_up(offset)

    monkeypatch.setattr(broker.delays.access, "look_up", failing_once)
    put(broker, b"late", DELAY="1")
    clock = SetClock(due_ms(store, 1))
    delays = levels_of(broker, clock)
    for _ in range(2):
        delays.deliver_due()
        clock.now_ms += RETRY_MS
    assert bodies(store, "Orders") == [b"late"]


def test_a_damaged_message_is_left_out_and_logged(
    store: lakelog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    broker = broker_over(store)
    for body in (b"damaged", b"sound"):
        put(broker, body, DELAY="1")
    place = int(store.queue_units("SCHEDULE_TOPIC_XXXX", 0, 0, 1).offsets[0])
    store.flush()
    segment = min((Path(store.path) / "commitlog").glob("0*"))
    with segment.open("r+b") as file:
        data = file.read(4096)
        file.seek(data.index(b"damaged", place))
        file.write(b"D")
    clock = SetClock(due_ms(store, 1, 1))
    settle(levels_of(broker, clock), clock)
    assert bodies(store, "Orders") == [b"sound"]
    assert len([each for each in caplog.records if "is left out" in each.message]) == 1


def test_progress_is_not_saved_if_the_log_is_not_durable(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = broker_over(store)
    put(broker, b"one", DELAY="1")
    put(broker, b"timer", TIMER_DELAY_MS="1")
    clock = SetClock(due_ms(store, 1) + 1000)
    settle(levels_of(broker, clock), clock)
    settle(broker.delays.timers, clock)

    def fail() -> bool:
        raise StoreFailed("no sync", path=store.path)

    with monkeypatch.context() as failing:
        failing.setattr(broker.delays.access, "sync", fail)
        with pytest.raises(StoreFailed):
            save(broker)
    config = Path(store.path) / "config"
    files = [config / "delayOffset.json", config / "timercheck"]
    assert not any(each.exists() for each in files)
    assert "CID_RMQ_SYS_TIMER" not in store.groups()
    save(broker)
    assert store.groups()["CID_RMQ_SYS_TIMER"] == {"rmq_sys_wheel_timer": {0: 1}}
    assert all(each.exists() for each in files)


def test_a_message_of_a_removed_topic_still_comes(store: lakelog.Store) -> None:
    """As from RocketMQ's broker, which asks no configuration here."""
    broker = broker_over(store)
    put(broker, b"early")
    put(broker, b"late", DELAY="1")
    clock = SetClock(due_ms(store, 1))
    store.delete_topic("Orders")
    levels_of(broker, clock).deliver_due()
    assert bodies(store, "Orders") == [b"late"]


def test_it_sleeps_until_a_message_arrives(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "store") as store:
        assert not [each for each in threading.enumerate() if each.name == "lakelog-delays"]
        broker = Broker(store, BrokerSettings())
        put(broker, b"first", DELAY="1")
        assert store.get("Orders", 0, 0, wait_ms=60_000).messages
        turns: list[int] = []
        delays = delays_of(store)
        assert delays is not None
        deliver_due = delays.deliver_due

        def counted() -> int:
            turns.append(deliver_due())
            return turns[-1]

        delays.deliver_due = counted  # type: ignore[method-assign]  # counts
        put(broker, b"late", DELAY="1")
        assert store.get("Orders", 0, 1, wait_ms=60_000).messages
        assert len(turns) < 100
        _, found = store.read("Orders", 0)
        assert found.store_timestamp_ms >= due_ms(store, 1, 1)


# --- clocks ---


def test_a_time_noted_by_a_clock_that_was_ahead_is_corrected(store: lakelog.Store) -> None:
    """As by RocketMQ: the clock was corrected by an hour before the broker started."""
    broker = broker_over(store)
    for level in ("2", "18"):
        put(broker, level.encode(), DELAY=level)
    clock = SetClock(due_ms(store, 2) - 3_600_000)
    settle(levels_of(broker, clock), clock)
    assert bodies(store, "Orders") == [b"2", b"18"]


def test_a_clock_that_is_set_delays_nothing_and_hastens_nothing(store: lakelog.Store) -> None:
    broker = broker_over(store)
    put(broker, b"old", DELAY="18")
    system, steady = SetClock(due_ms(store, 18) - 60_000), SetClock(7)
    delays = levels_of(broker, system)
    set_clocks(broker, system, steady)
    delays.deliver_due()

    def passes(ms: int, step_ms: int) -> list[bytes]:
        steady.now_ms += ms
        system.now_ms += ms + step_ms
        settle(delays, system)
        return bodies(store, "Orders")

    assert passes(10_000, 3_600_000) == []
    assert passes(10_000, -3_600_000) == []
    assert passes(10_000, -600_000) == []
    put(broker, b"new", DELAY="1")
    assert passes(29_999, 0) == [b"new"]
    assert passes(1, 0) == [b"new", b"old"]


def test_a_level_that_cannot_be_read_stops_no_other(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = broker_over(store)
    units = broker.delays.access.queue_units
    for level in ("1", "2"):
        put(broker, level.encode(), DELAY=level)
    clock = SetClock(due_ms(store, 2))

    def failing(topic: str, queue_id: int, *place: int) -> Any:
        if queue_id == 0:
            raise ReadFailed("it cannot be read", path=store.path, error=OSError(5, "error"))
        return units(topic, queue_id, *place)

    with monkeypatch.context() as patched:
        patched.setattr(broker.delays.access, "queue_units", failing)
        settle(levels_of(broker, clock), clock)
    assert bodies(store, "Orders") == [b"2"]
    clock.now_ms += RETRY_MS
    settle(broker.delays.levels, clock)
    assert bodies(store, "Orders") == [b"2", b"1"]


def test_a_message_over_a_limit_that_was_lowered_waits_for_a_higher_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueParts, "_look", lambda _parts: None)  # only the test delivers
    clock, lengths = SetClock(0), []
    for limit in ("1MiB", "64KiB", "1MiB"):
        with lakelog.open(tmp_path / "store", max_message_size_bytes=limit) as store:
            broker = broker_over(store)
            if not clock.now_ms:
                put(broker, bytes(150_000), DELAY="1")
                put(broker, b"small", DELAY="1")
                clock.now_ms = due_ms(store, 1, 1)
            else:
                settle(levels_of(broker, clock), clock)
                save(broker)
                lengths.append([len(each) for each in bodies(store, "Orders")])
    assert lengths == [[5], [5, 150_000, 5]]
