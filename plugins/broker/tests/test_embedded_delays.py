"""Delayed messages of an embedded store come from a broker, and those of a broker from a store."""

from __future__ import annotations

from pathlib import Path

import lakelog
from lakelog import Message
from lakelog_broker.embedded import EmbeddedBroker
from lakelog_testing import FakeClock
from plugins.broker.tests.raw_client import answer_to
from tests.support.waiting import until

HOUR_MS = 3_600_000


def bodies(store: lakelog.Store) -> list[bytes]:
    """What has come, in order."""
    return [bytes(each.body) for each in store.get("orders", 0, 0, 100).messages]


def test_a_broker_delivers_what_waits_and_the_store_what_it_left(tmp_path: Path) -> None:
    path, clock = tmp_path / "store", FakeClock()
    with lakelog.open(path, clock=clock) as store:
        for hours in (1, 2, 3):
            message = Message("orders", b"%d" % hours, queue_id=0, delay_ms=hours * HOUR_MS)
            store.put(message)
        clock.advance(HOUR_MS)
        until(lambda: bodies(store) == [b"1"])
    with EmbeddedBroker(path, clock=clock) as broker:
        answer_to(broker.namesrv, "orders", b"of a client", 0, TIMER_DELAY_MS=2 * HOUR_MS)
        clock.advance(HOUR_MS)
        until(lambda: bodies(broker.store) == [b"1", b"2"])
    with lakelog.open(path, clock=clock) as store:
        clock.advance(HOUR_MS)
        until(lambda: set(bodies(store)[2:]) == {b"3", b"of a client"})
        assert bodies(store)[:2] == [b"1", b"2"]


def test_a_message_that_another_process_puts_comes_once_beside_a_broker(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with EmbeddedBroker(path) as broker, lakelog.open(path) as beside:
        assert (broker.store.role, beside.role) == ("owner", "attach")
        for number in range(20):
            message = Message("orders", b"%d" % number, queue_id=0, delay_ms=20 * number)
            beside.put(message)
        until(lambda: len(bodies(beside)) == 20)
        timers = broker.broker.timers
        assert timers is not None
        assert timers.delivered == 19
    with lakelog.open(path) as store:
        store.put(Message("orders", b"last", queue_id=0, delay_ms=1))
        until(lambda: b"last" in bodies(store))
        assert len(bodies(store)) == 21


def test_a_broker_in_another_process_than_the_services_leaves_delays_to_them(
    tmp_path: Path,
) -> None:
    """As under ``lakelog serve``."""
    path = tmp_path / "store"
    with lakelog.open(path) as owner, EmbeddedBroker(path) as broker:
        assert broker.store.role == "attach"
        assert broker.broker.timers is None
        for properties in ({"TIMER_DELAY_MS": 10}, {"DELAY": 1}):
            answer_to(broker.namesrv, "orders", b"late", 0, **properties)
        until(lambda: bodies(owner) == [b"late"] * 2)
