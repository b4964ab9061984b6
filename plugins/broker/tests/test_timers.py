"""Timer messages: to the millisecond, recalled, over restarts, and beside RocketMQ's checkpoint."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import PutRefused, PutResult, StoredMessage
from lakelog.errors import OffsetOutOfRange, ReadFailed
from lakelog.results import PutStatus
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_broker.traffic import TIMER_GET
from lakelog_queues.delays.delivering import RETRY_MS
from lakelog_queues.delays.timers import ROLL_MS, Timers, due_of
from plugins.broker.tests.support import (
    OnRequest,
    SetClock,
    bodies,
    broker_over,
    dispatched,
    put,
    save,
    set_clocks,
    settle,
)

HOUR_MS = 3_600_000


def now_ms() -> int:
    """The time of the system."""
    return time.time_ns() // 1_000_000


def timer_offset(store: lakelog.Store) -> int:
    """The saved offset of the lowest timer message that waits."""
    return store.groups()["CID_RMQ_SYS_TIMER"]["rmq_sys_wheel_timer"][0]


def due_ms(waiting: StoredMessage) -> int:
    """When a timer message is due."""
    return due_of(waiting)[0]


def timers_of(broker: OnRequest, clock: SetClock) -> Timers:
    """The timers of a broker, with another clock."""
    set_clocks(broker, clock)
    return broker.delays.timers


def test_a_message_comes_at_its_millisecond(store: lakelog.Store) -> None:
    broker, due = broker_over(store), now_ms() + HOUR_MS + 7
    put(broker, b"late", TIMER_DELIVER_MS=str(due))
    put(broker, b"later", TIMER_DELIVER_MS=str(due + 1))
    clock = SetClock(due - 1)
    timers = timers_of(broker, clock)
    assert (timers.unread, len(timers)) == (2, 0)
    assert settle(timers, clock) == due
    assert bodies(store, "Orders") == []
    assert (timers.unread, len(timers), timers.behind_ms, timers.delivered) == (0, 2, 0, 0)
    clock.now_ms = due + 5_000
    assert timers.behind_ms == 5_000
    clock.now_ms = due
    assert settle(timers, clock) == due + 1
    assert bodies(store, "Orders") == [b"late"]
    assert (len(timers), timers.behind_ms, timers.delivered) == (1, 0, 1)
    assert broker.traffic.counts()[TIMER_GET, ""] == 1


def test_many_messages_come_at_their_times_in_order(store: lakelog.Store) -> None:
    """Also those of one millisecond, and those that are due long after others."""
    broker, start = broker_over(store), now_ms() + HOUR_MS
    spans = random.Random(1).choices([*range(5), 900, 60_000, 60_001, 599_999], k=60)
    for number, span in enumerate(spans):
        put(broker, b"%d" % number, TIMER_DELIVER_MS=str(start + span))
    clock = SetClock(start)
    timers, expected = timers_of(broker, clock), sorted(range(60), key=lambda at: spans[at])
    while (due := settle(timers, clock)) < start + 600_000:
        count = sum(start + span <= clock.now_ms for span in spans)
        assert bodies(store, "Orders") == [b"%d" % at for at in expected[:count]]
        clock.now_ms = due
        if not len(timers):
            break
    assert bodies(store, "Orders") == [b"%d" % at for at in expected]


def test_a_delay_begins_when_the_message_is_stored(store: lakelog.Store) -> None:
    broker = broker_over(store)
    put(broker, b"ms", TIMER_DELAY_MS="1500")
    put(broker, b"s", TIMER_DELAY_SEC="2")
    first, second = map(due_ms, store.read("rmq_sys_wheel_timer", 0))
    clock = SetClock(first - 1)
    timers = timers_of(broker, clock)
    settle(timers, clock)
    assert bodies(store, "Orders") == []
    clock.now_ms += 1
    settle(timers, clock)
    assert bodies(store, "Orders") == [b"ms"]
    clock.now_ms = second
    settle(timers, clock)
    assert bodies(store, "Orders") == [b"ms", b"s"]


def test_a_time_that_has_passed_is_now_and_one_beyond_the_limit_is_refused(
    store: lakelog.Store,
) -> None:
    broker = broker_over(store, timer_limit_s=3600)
    put(broker, b"now", TIMER_DELIVER_MS=str(now_ms() - 1))
    assert bodies(store, "Orders") == [b"now"]
    for wrong in (str(now_ms() + 2 * HOUR_MS), "soon"):
        with pytest.raises(Refused) as caught:
            put(broker, b"never", TIMER_DELIVER_MS=wrong)
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_recalled_message_does_not_come(store: lakelog.Store) -> None:
    broker, due = broker_over(store), now_ms() + HOUR_MS
    for name in ("kept", "recalled"):
        put(broker, name.encode(), UNIQ_KEY=name, TIMER_DELIVER_MS=str(due))
    recall = {"TIMER_DEL_UNIQKEY": "Orders+recalled", "TIMER_DELIVER_MS": str(due + 1)}
    put(broker, b"0", **recall)
    clock = SetClock(due)
    timers = timers_of(broker, clock)
    settle(timers, clock)
    assert bodies(store, "Orders") == [b"kept"]
    clock.now_ms += HOUR_MS
    settle(timers, clock)
    assert bodies(store, "Orders") == [b"kept"]
    assert len(timers) == len(timers._recalled) == 0


def test_a_restart_delivers_the_rest_and_nothing_again(store: lakelog.Store) -> None:
    broker, due = broker_over(store), now_ms() + HOUR_MS
    put(broker, b"last", TIMER_DELIVER_MS=str(due + HOUR_MS))
    for number in range(5):
        put(broker, b"%d" % number, TIMER_DELIVER_MS=str(due + number))
    clock = SetClock(due + 2)
    settle(timers_of(broker, clock), clock)
    save(broker)
    clock.now_ms += 1
    again = broker_over(store)
    settle(timers_of(again, clock), clock)
    assert bodies(store, "Orders") == [b"0", b"1", b"2", b"3"]
    assert timer_offset(store) == 0
    clock.now_ms = due + HOUR_MS
    settle(timers_of(again, clock), clock)
    save(again)
    assert bodies(store, "Orders") == [b"0", b"1", b"2", b"3", b"4", b"last"]
    assert timer_offset(store) == 6


def test_a_refused_message_waits_over_a_restart_while_others_come(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker, due = broker_over(store), now_ms() + HOUR_MS
    for number, body in enumerate((b"big", b"small")):
        put(broker, body, TIMER_DELIVER_MS=str(due + number))
    clock = SetClock(due + 10)

    def refusing(message: lakelog.Message) -> PutResult:
        if message.body == b"big":
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
        return store.put(message)

    monkeypatch.setattr(broker.delays.access, "put", refusing)
    timers = timers_of(broker, clock)
    for _ in range(3):
        settle(timers, clock)
        clock.now_ms += RETRY_MS
    assert bodies(store, "Orders") == [b"small"]
    assert len(caplog.records) == len(timers) == 1
    save(broker)
    again = broker_over(store)
    settle(timers_of(again, clock), clock)
    assert b"big" in bodies(store, "Orders")


def test_rocketmqs_checkpoint_says_what_waits(store: lakelog.Store) -> None:
    """Its broker enqueued four messages, and delivered those before its read time."""
    broker, due = broker_over(store), (now_ms() + HOUR_MS) // 1000 * 1000
    for number, later in enumerate((0, 1000, 2000, 0, 0)):
        put(broker, b"%d" % number, TIMER_DELIVER_MS=str(due + later))
    config = Path(store.path) / "config"
    config.mkdir(exist_ok=True)
    fields = struct.pack(">7q", due + 1000, 0, 4, 4, 0, 0, 1)
    (config / "timercheck").write_bytes(fields.ljust(4096, b"\0"))
    clock = SetClock(due + HOUR_MS)
    settle(timers_of(broker_over(store), clock), clock)
    assert sorted(bodies(store, "Orders")) == [b"1", b"2", b"4"]


def test_the_checkpoint_lets_rocketmq_read_from_the_first_that_waits(store: lakelog.Store) -> None:
    broker, due = broker_over(store), now_ms() + HOUR_MS
    for later in (0, 9_000, 0):
        put(broker, b"x", TIMER_DELIVER_MS=str(due + later))
    clock = SetClock(due)
    settle(timers_of(broker, clock), clock)
    save(broker)
    data = (Path(store.path) / "config" / "timercheck").read_bytes()
    read_time_ms, _, lowest, masters, *_ = struct.unpack_from(">7q", data)
    assert (len(data), lowest, masters) == (4096, 1, 3)
    assert read_time_ms % 1000 == 0
    assert due - 2000 <= read_time_ms <= due - 1000


def test_a_message_that_waits_long_is_appended_again(store: lakelog.Store) -> None:
    broker, due = broker_over(store), now_ms() + ROLL_MS + 12 * HOUR_MS
    put(broker, b"old", TIMER_DELIVER_MS=str(due))
    clock = SetClock(now_ms() + ROLL_MS + 1)
    timers = timers_of(broker, clock)
    settle(timers, clock)
    timers.roll()
    dispatched(store)
    settle(timers, clock)
    save(broker)
    assert timer_offset(store) == 1
    clock.now_ms = due
    settle(timers, clock)
    assert bodies(store, "Orders") == [b"old"]


def waiting_for_days(store: lakelog.Store, count: int) -> tuple[OnRequest, SetClock, Timers]:
    """Timer messages that have waited so long that they are appended again."""
    broker, due = broker_over(store), now_ms() + ROLL_MS + 12 * HOUR_MS
    for number in range(count):
        put(broker, b"%d" % number, TIMER_DELIVER_MS=str(due + number))
    clock = SetClock(now_ms() + ROLL_MS + 1)
    timers = timers_of(broker, clock)
    settle(timers, clock)
    return broker, clock, timers


def test_a_deleted_timer_stops_the_renewal_of_no_other(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, clock, timers = waiting_for_days(store, 3)
    first = next(iter(store.read("rmq_sys_wheel_timer", 0))).physical_offset
    look_up = broker.delays.access.look_up

    def without_the_first(offset: int) -> StoredMessage:
        if offset == first:
            raise OffsetOutOfRange("it is deleted", offset=offset)
        return look_up(offset)

    monkeypatch.setattr(broker.delays.access, "look_up", without_the_first)
    timers.roll()
    dispatched(store)
    assert [each.body for each in store.read("rmq_sys_wheel_timer", 0)][3:] == [b"1", b"2"]
    settle(timers, clock)
    save(broker)
    assert timer_offset(store) == 3


def test_a_timer_whose_renewal_is_refused_stops_no_other(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, clock, timers = waiting_for_days(store, 3)

    def refusing(message: lakelog.Message) -> PutResult:
        if message.body == b"0":
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
        return store.put(message)

    with monkeypatch.context() as patched:
        patched.setattr(broker.delays.access, "put", refusing)
        timers.roll()
    timers.roll()
    dispatched(store)
    renewed = [each.body for each in store.read("rmq_sys_wheel_timer", 0)][3:]
    assert renewed == [b"1", b"2", b"0"]
    clock.now_ms += 12 * HOUR_MS
    settle(timers, clock)
    assert bodies(store, "Orders") == [b"0", b"1", b"2"]


def test_a_delay_that_a_clock_ahead_has_noted_is_not_longer(store: lakelog.Store) -> None:
    broker = broker_over(store)
    put(broker, b"late", TIMER_DELAY_MS="1500")
    (waiting,) = store.read("rmq_sys_wheel_timer", 0)
    clock = SetClock(due_ms(waiting) - 1500 - HOUR_MS)
    timers = timers_of(broker, clock)
    settle(timers, clock)
    clock.now_ms += 1500
    settle(timers, clock)
    assert bodies(store, "Orders") == [b"late"]


def test_a_clock_that_is_set_moves_delays_and_no_times(store: lakelog.Store) -> None:
    """Over a restart, too: a delay that waits was not delivered."""
    broker = broker_over(store)
    put(broker, b"delay", TIMER_DELAY_MS=str(HOUR_MS))
    (waiting,) = store.read("rmq_sys_wheel_timer", 0)
    noted_ms = due_ms(waiting) - HOUR_MS
    put(broker, b"time", TIMER_DELIVER_MS=str(noted_ms + HOUR_MS // 2))
    system, steady = SetClock(noted_ms), SetClock(0)
    timers = timers_of(broker, system)
    set_clocks(broker, system, steady)
    settle(timers, system)
    system.now_ms += 2 * HOUR_MS
    settle(timers, system)
    assert bodies(store, "Orders") == [b"time"], "the delay goes on by the steady clock"
    save(broker)
    later = SetClock(noted_ms + HOUR_MS)
    settle(timers_of(broker_over(store), later), later)
    assert bodies(store, "Orders") == [b"time", b"delay"]
    system.now_ms += HOUR_MS - 1 - 3 * HOUR_MS
    steady.now_ms += HOUR_MS - 1
    settle(timers, system)
    assert bodies(store, "Orders") == [b"time", b"delay"]
    system.now_ms += 1
    steady.now_ms += 1
    settle(timers, system)
    assert bodies(store, "Orders") == [b"time", b"delay", b"delay"]


def test_damage_to_lakelogs_own_progress_leaves_that_of_rocketmq(
    store: lakelog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    broker, due = broker_over(store), now_ms() + HOUR_MS
    put(broker, b"late", TIMER_DELIVER_MS=str(due))
    clock = SetClock(due)
    settle(timers_of(broker, clock), clock)
    save(broker)
    for text in ("no JSON", '{"timercheck": 5}'):
        (Path(store.path) / "config" / "timerProgress.json").write_text(text)
        caplog.clear()
        settle(timers_of(broker_over(store), clock), clock)
        assert "timerProgress.json" in caplog.text
    assert bodies(store, "Orders") == [b"late"]


def test_new_timers_that_cannot_be_read_stop_no_due_one(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, due = broker_over(store), now_ms() + HOUR_MS
    put(broker, b"due", TIMER_DELIVER_MS=str(due))
    clock = SetClock(now_ms())
    timers = timers_of(broker, clock)
    settle(timers, clock)
    put(broker, b"new", TIMER_DELIVER_MS=str(due))
    units, clock.now_ms = broker.delays.access.queue_units, due

    def failing(topic: str, queue_id: int, offset: int, count: int) -> Any:
        if offset == 1:
            raise ReadFailed("it cannot be read", path=store.path, error=OSError(5, "error"))
        return units(topic, queue_id, offset, count)

    with monkeypatch.context() as patched:
        patched.setattr(broker.delays.access, "queue_units", failing)
        timers.deliver_due()
        assert timers.deliver_due() == due + RETRY_MS
        assert not timers._reader.has_grown(), "it waits before it reads again"
    assert bodies(store, "Orders") == [b"due"]
    clock.now_ms += RETRY_MS
    for _ in range(3):
        timers.deliver_due()
    assert bodies(store, "Orders") == [b"due", b"new"]
