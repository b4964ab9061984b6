"""Transactions: committed once, rolled back never, asked about, given up, over restarts."""

from __future__ import annotations

import time

import attrs
import pytest

import lakelog
from lakelog import PutRefused, PutResult, StoredMessage
from lakelog.format.layout import MAX_PROPERTIES_BYTES
from lakelog.results import PutStatus
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused
from lakelog_broker.remoting.server import record_with_own_topic
from lakelog_broker.scheduled.transactions import GIVEN_UP_TOPIC, GROUP, OP_TOPIC, Transactions
from lakelog_broker.security import AccessRight, User
from lakelog_broker.state import Member, Peer
from plugins.broker.tests.support import (
    SetClock,
    bodies,
    broker_over,
    dispatched,
    message_of_a_client,
    put,
    save,
)

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TIMEOUT_MS, INTERVAL_MS = 6_000, 30_000


@attrs.define
class Asked(Peer):
    """A producer that notes the half messages about which it is asked."""

    halves: list[StoredMessage] = attrs.field(factory=list)

    def check_transaction(self, half: StoredMessage) -> None:
        """Note it."""
        self.halves.append(half)


@pytest.fixture
def clock() -> SetClock:
    """A clock that begins with the system's time."""
    return SetClock(time.time_ns() // 1_000_000)


def transactional(
    store: lakelog.Store, clock: SetClock, **settings: object
) -> tuple[Broker, Asked]:
    """A broker, and the producer of its group."""
    dispatched(store)
    broker, asked = broker_over(store, **settings), Asked()
    broker.transactions._clock = broker.transactions._steady = clock
    broker.members.join_producers("producers", Member("client", asked, 0.0))
    return broker, asked


def put_half(broker: Broker, body: bytes, **more: str) -> StoredMessage:
    """Put a half message; returns it as stored."""
    put(broker, body, TRAN_MSG="true", PGROUP="producers", UNIQ_KEY=body.decode(), **more)
    *_, half = broker.store.read(HALF_TOPIC, 0)
    return half


def end(broker: Broker, half: StoredMessage, commit: bool | None) -> bool:
    """End a transaction."""
    return broker.transactions.end(half.physical_offset, half.queue_offset, commit)


def settle(transactions: Transactions, clock: SetClock, store: lakelog.Store) -> None:
    """Ask about all that is due."""
    for _ in range(2):  # also half messages that were appended again
        dispatched(store)
        while transactions.check_due() <= clock.now_ms:
            pass
        transactions.ask()


def test_a_commit_delivers_once_and_a_rollback_never(store: lakelog.Store, clock: SetClock) -> None:
    broker, asked = transactional(store, clock)
    committed, rolled_back = put_half(broker, b"yes"), put_half(broker, b"no")
    assert bodies(store, "Orders") == []
    assert end(broker, committed, True)
    assert end(broker, rolled_back, False)
    assert not end(broker, committed, True)
    assert not end(broker, rolled_back, True)
    assert bodies(store, "Orders") == [b"yes"]
    (found,) = store.read("Orders", 0)
    assert found.sys_flag & 0xC == 0x8
    assert found.prepared_transaction_offset == committed.physical_offset
    assert "TRAN_MSG" not in found.properties
    assert bodies(store, OP_TOPIC) == [b"0,", b"1,"]
    assert [each.tags for each in store.read(OP_TOPIC, 0)] == ["d", "d"]
    clock.now_ms += TIMEOUT_MS
    settle(broker.transactions, clock, store)
    assert asked.halves == []


def test_a_commit_that_is_refused_can_be_repeated(
    store: lakelog.Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _ = transactional(store, clock)
    half = put_half(broker, b"x")

    def refuse(*_arguments: object, **_named: object) -> PutResult:
        raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(broker.appender, "put_real", refuse)
        with pytest.raises(PutRefused):
            end(broker, half, True)
    assert end(broker, half, True)
    assert bodies(store, "Orders") == [b"x"]


def test_only_the_half_message_itself_can_be_ended(store: lakelog.Store, clock: SetClock) -> None:
    broker, _ = transactional(store, clock)
    half = put_half(broker, b"x")
    put(broker, b"plain")
    (plain,) = store.read("Orders", 0)
    transactions = broker.transactions
    assert not transactions.end(half.physical_offset, half.queue_offset + 1, True)
    assert not transactions.end(plain.physical_offset, plain.queue_offset, True)
    assert not transactions.end(half.physical_offset + 1, half.queue_offset, True)
    assert not transactions.end(half.physical_offset, half.queue_offset, True, "others")
    assert bodies(store, "Orders") == [b"plain"]


def test_a_half_message_goes_to_those_only_who_may_send_to_its_topic(
    store: lakelog.Store, clock: SetClock
) -> None:
    """Whatever producer group another user names: the half message has the body."""
    broker, asked = transactional(store, clock)
    rights = {"other": AccessRight.PUB}, {"Orders": AccessRight.SUB}, {"Orders": AccessRight.PUB}
    members = [Asked() for _ in rights]
    broker.members.leave("client", None, "producers")
    for number, (member, perms) in enumerate(zip(members, rights, strict=True)):
        user = User(access_key=f"user{number}", secret_key="secret", topic_perms=perms)
        joined = Member(f"client{number}", member, 0.0, user=user)
        broker.members.join_producers("producers", joined)
    put_half(broker, b"x")
    for _ in range(3):
        clock.now_ms += TIMEOUT_MS + INTERVAL_MS
        settle(broker.transactions, clock, store)
    assert [len(each.halves) for each in (*members, asked)] == [0, 0, 3, 0]


def test_an_unknown_outcome_is_asked_for_until_it_is_given_up(
    store: lakelog.Store, clock: SetClock
) -> None:
    broker, asked = transactional(store, clock, transaction_check_limit=2)
    half = put_half(broker, b"x")
    assert end(broker, half, None)
    clock.now_ms = half.born_timestamp_ms + TIMEOUT_MS - 1
    settle(broker.transactions, clock, store)
    assert asked.halves == []
    clock.now_ms += 1
    for times in (1, 2):
        settle(broker.transactions, clock, store)
        assert asked.halves[-1].properties["TRANSACTION_CHECK_TIMES"] == str(times)
        assert len(asked.halves) == times
        clock.now_ms += INTERVAL_MS
    settle(broker.transactions, clock, store)
    assert len(asked.halves) == 2
    assert bodies(store, GIVEN_UP_TOPIC) == [b"x"]
    save(broker)
    assert broker.offsets.get(GROUP, HALF_TOPIC, 0) == 3
    assert not end(broker, asked.halves[-1], True)


@pytest.mark.parametrize("which", [0, 1])
def test_a_late_end_counts_by_the_first_and_the_new_offset(
    store: lakelog.Store, clock: SetClock, which: int
) -> None:
    broker, asked = transactional(store, clock)
    half = put_half(broker, b"x")
    clock.now_ms += TIMEOUT_MS + 1000
    settle(broker.transactions, clock, store)
    (new,) = asked.halves
    assert new.queue_offset == 1
    both = (half, new)
    assert end(broker, both[which], True)
    assert not end(broker, both[1 - which], True)
    clock.now_ms += INTERVAL_MS
    settle(broker.transactions, clock, store)
    assert len(asked.halves) == 1
    assert bodies(store, "Orders") == [b"x"]


def test_a_restart_keeps_what_is_open_and_ended(store: lakelog.Store, clock: SetClock) -> None:
    broker, _ = transactional(store, clock)
    put_half(broker, b"open")
    ended, moved = put_half(broker, b"ended"), put_half(broker, b"later")
    assert end(broker, ended, True)
    again, asked = transactional(store, clock)
    settle(again.transactions, clock, store)
    assert not end(again, ended, True)
    clock.now_ms += TIMEOUT_MS + 60_000  # the halves have the time of the system
    settle(again.transactions, clock, store)
    assert [each.body for each in asked.halves] == [b"open", b"later"]
    save(again)
    assert again.offsets.get(GROUP, HALF_TOPIC, 0) == 3
    third, _ = transactional(store, clock)
    settle(third.transactions, clock, store)
    assert len(third.transactions) == 2
    assert end(third, moved, True)  # the new message has the first offset
    assert bodies(store, "Orders") == [b"ended", b"later"]


def test_a_crash_after_an_asked_end_does_not_ask_again(
    store: lakelog.Store, clock: SetClock
) -> None:
    broker, asked = transactional(store, clock)
    put_half(broker, b"x")
    for _ in range(2):
        clock.now_ms += TIMEOUT_MS + INTERVAL_MS
        settle(broker.transactions, clock, store)
    assert end(broker, asked.halves[-1], True)
    again, asked_again = transactional(store, clock)  # nothing was saved
    clock.now_ms += INTERVAL_MS
    settle(again.transactions, clock, store)
    assert asked_again.halves == []
    assert bodies(store, "Orders") == [b"x"]
    save(again)
    assert again.offsets.get(GROUP, HALF_TOPIC, 0) == 3


def test_immunity_delays_the_first_request(store: lakelog.Store, clock: SetClock) -> None:
    broker, asked = transactional(store, clock)
    put_half(broker, b"x", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    clock.now_ms += 59_000
    settle(broker.transactions, clock, store)
    assert asked.halves == []
    clock.now_ms += 2_000
    settle(broker.transactions, clock, store)
    assert len(asked.halves) == 1


def test_a_half_message_that_waits_long_is_appended_again(
    store: lakelog.Store, clock: SetClock
) -> None:
    """So the log before it can be deleted; no producer is asked before the given time."""
    broker, asked = transactional(store, clock)
    half = put_half(broker, b"x", CHECK_IMMUNITY_TIME_IN_SECONDS="7200")
    settle(broker.transactions, clock, store)
    clock.now_ms += 3_601_000
    settle(broker.transactions, clock, store)
    save(broker)
    assert broker.offsets.get(GROUP, HALF_TOPIC, 0) == 1
    assert asked.halves == []
    assert end(broker, half, True)
    assert bodies(store, "Orders") == [b"x"]


def test_a_committed_message_waits_for_its_delay_level(
    store: lakelog.Store, clock: SetClock
) -> None:
    broker, _ = transactional(store, clock)
    half = put_half(broker, b"x", DELAY="1")
    assert end(broker, half, True)
    assert bodies(store, "Orders") == []
    assert bodies(store, "SCHEDULE_TOPIC_XXXX") == [b"x"]


def test_the_record_for_the_client_has_its_own_topic(store: lakelog.Store, clock: SetClock) -> None:
    broker, _ = transactional(store, clock)
    half = put_half(broker, b"x")
    record = record_with_own_topic(half)
    assert b"\x06Orders" in record
    assert int.from_bytes(record[:4]) == len(record)
    assert int.from_bytes(record[20:28]) == half.queue_offset
    assert int.from_bytes(record[28:36]) == half.physical_offset


def test_a_half_message_without_room_for_a_check_is_asked_about_where_it_is(
    store: lakelog.Store, clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker, asked = transactional(store, clock, transaction_check_limit=3)
    overhead = len(put_half(broker, b"a", PAD="x").properties_bytes) - 1
    full = put_half(broker, b"b", PAD="x" * (MAX_PROPERTIES_BYTES - overhead))
    lost = put_half(broker, b"c", PAD="x" * (MAX_PROPERTIES_BYTES - overhead))
    clock.now_ms = lost.born_timestamp_ms + TIMEOUT_MS
    settle(broker.transactions, clock, store)
    places = [(each.queue_offset, each.physical_offset) for each in asked.halves]
    assert places[1:] == [(each.queue_offset, each.physical_offset) for each in (full, lost)]
    assert end(broker, full, True)
    assert bodies(store, "Orders") == [b"b"]
    for _ in range(3):
        clock.now_ms += INTERVAL_MS
        settle(broker.transactions, clock, store)
    assert sorted(bodies(store, GIVEN_UP_TOPIC)) == [b"a", b"c"]
    assert sum("no room" in each.message for each in caplog.records) == 2


def test_a_time_of_birth_ahead_of_the_clock_delays_no_check(
    store: lakelog.Store, clock: SetClock
) -> None:
    broker, asked = transactional(store, clock)
    message = message_of_a_client(b"x", TRAN_MSG="true", PGROUP="producers", UNIQ_KEY="x")
    message.born_timestamp_ms = clock.now_ms + 3_600_000
    broker.appender.append(message)
    dispatched(store)
    (half,) = store.read(HALF_TOPIC, 0)
    settle(broker.transactions, clock, store)
    clock.now_ms = half.store_timestamp_ms + TIMEOUT_MS
    settle(broker.transactions, clock, store)
    assert [each.body for each in asked.halves] == [b"x"]


def test_an_odd_number_in_an_end_hides_no_other(store: lakelog.Store, clock: SetClock) -> None:
    broker, asked = transactional(store, clock)
    halves = [put_half(broker, body) for body in (b"a", b"b")]
    store.put(lakelog.Message(OP_TOPIC, b"0,x,1,", tags="d", queue_id=0))
    broker, asked = transactional(store, clock)
    clock.now_ms = halves[1].born_timestamp_ms + TIMEOUT_MS
    settle(broker.transactions, clock, store)
    assert asked.halves == []


def test_a_half_message_has_room_for_its_time_of_delivery(
    store: lakelog.Store, clock: SetClock
) -> None:
    broker, _ = transactional(store, clock)
    due = str(clock.now_ms + 60_000)
    overhead = len(put_half(broker, b"a", PAD="x", TIMER_DELIVER_MS=due).properties_bytes) - 1
    with pytest.raises(Refused, match="no room"):
        put_half(broker, b"b", PAD="x" * (MAX_PROPERTIES_BYTES - overhead), TIMER_DELIVER_MS=due)
    full = "x" * (MAX_PROPERTIES_BYTES - overhead - 28)
    half = put_half(broker, b"c", PAD=full, TIMER_DELIVER_MS=due)
    assert broker.transactions.end(half.physical_offset, half.queue_offset, True)
    assert bodies(store, "rmq_sys_wheel_timer") == [b"c"]
