"""Counts of messages, and their rates."""

from __future__ import annotations

import attrs

from lakelog_broker.state.traffic import (
    BROKER_GET,
    BROKER_PUT,
    DAY,
    GROUP_GET,
    HOUR,
    MINUTE,
    TOPIC_PUT,
    Rate,
    Traffic,
)


@attrs.define
class LongQueue:
    """A queue that grows."""

    topic: str
    max_offset: int


class Counted:
    """A topic with messages from before the start, a topic of the broker's own, and a clock."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.queues = [LongQueue("orders", 5), LongQueue("orders", 0), LongQueue("own", 0)]
        self.traffic = Traffic(
            lambda: self.queues, lambda topic: topic != "own", lambda: self.now_s
        )

    def wait(self, seconds: int) -> None:
        """Let time pass, with a sample every 10 seconds."""
        for _ in range(seconds // 10):
            self.now_s += 10
            self.traffic.sample()


def test_growth_since_the_start() -> None:
    """Of all queues of a topic; topics of the broker's own are not part of its sum."""
    case = Counted()
    assert case.traffic.counts() == {}
    case.queues[0].max_offset += 2
    case.queues[1].max_offset += 1
    case.queues[2].max_offset += 4
    case.queues.append(LongQueue("new", 1))
    counts = {(TOPIC_PUT, "orders"): 3, (TOPIC_PUT, "own"): 4, (TOPIC_PUT, "new"): 1}
    assert case.traffic.counts() == {**counts, (BROKER_PUT, ""): 4}
    case.traffic.note_read("billing", "orders", 0, 7, 2)
    case.traffic.note_read("billing", "orders", 0, 7, 0)
    reads = {(GROUP_GET, "orders@billing"): 2, (BROKER_GET, ""): 2}
    assert case.traffic.counts() == {**counts, (BROKER_PUT, ""): 4, **reads}
    assert (case.traffic.found, case.traffic.missed) == (1, 1)
    assert case.traffic.pulled_offset("billing", "orders", 0) == 7
    case.traffic.forget("billing")
    assert case.traffic.pulled_offset("billing", "orders", 0) == 0
    assert (GROUP_GET, "orders@billing") not in case.traffic.counts()


def test_rates_of_windows() -> None:
    """A message counts in each window until it is older than the window."""
    case = Counted()
    assert case.traffic.rates(TOPIC_PUT, "orders") is None
    case.wait(20)
    case.queues[0].max_offset += 60
    rates = case.traffic.rates(TOPIC_PUT, "orders")
    assert rates == dict.fromkeys((MINUTE, HOUR, DAY), Rate(60, 3.0))
    assert case.traffic.recent_rates(BROKER_PUT) == [60.0, 3.0, 3.0]
    case.wait(120)
    rates = case.traffic.rates(TOPIC_PUT, "orders")
    assert rates is not None
    assert (rates[MINUTE].count, rates[HOUR].count, rates[DAY].count) == (0, 60, 60)
    case.wait(2 * 3600)
    rates = case.traffic.rates(TOPIC_PUT, "orders")
    assert rates is not None
    assert (rates[HOUR].count, rates[DAY].count) == (0, 60)


def test_counts_of_midnights() -> None:
    """Those of the last two, as the broker has seen them."""
    case = Counted()
    case.queues[0].max_offset += 3
    case.traffic.note_read("billing", "orders", 0, 1, 1)
    assert case.traffic.mornings == ((0, 0), (0, 0))
    case.wait(86400)
    assert case.traffic.mornings == ((0, 0), (3, 1))
    case.queues[0].max_offset += 1
    case.wait(86400)
    assert case.traffic.mornings == ((3, 1), (4, 1))
