"""Any order of polls, outcomes, time-outs, joins, leaves and deaths keeps the guarantees."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final, TypeAlias

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog import Delivery, GroupConsumer, Message, Store
from plugins.queues.tests.groups.support import Clock, open_store

MEMBERS = 3
INVISIBLE_MS = 100
ENDS: Final = {0: 7, 1: 3, 3: 5}
"""The number of messages in each queue."""
Place: TypeAlias = tuple[int, int]
"""Queue id and queue offset."""

WHO = st.integers(0, MEMBERS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("poll"), WHO, st.integers(1, 5)),
        st.tuples(st.just("poll"), WHO, st.integers(1, 5)),
        st.tuples(st.just("ack"), WHO, st.integers(0, 9)),
        st.tuples(st.just("nack"), WHO, st.integers(0, 9)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 2 * INVISIBLE_MS)),
        st.tuples(st.sampled_from(["close", "kill", "commit"]), WHO, st.just(0)),
    ),
    max_size=40,
)


@attrs.define
class Group:
    """A group, and the messages that its members have.

    :ivar until: time in ms from which each message may be handed out again
    """

    store: Store
    orderly: bool
    name: str
    clock: Clock = attrs.field(factory=Clock)
    members: dict[int, GroupConsumer] = attrs.field(factory=dict)
    held: dict[int, list[Delivery]] = attrs.field(factory=dict)
    until: dict[Place, int] = attrs.field(factory=dict)
    taken: dict[Delivery, int] = attrs.field(factory=dict)
    acknowledged: set[Place] = attrs.field(factory=set)

    def member(self, number: int) -> GroupConsumer:
        """The member of this number; it joins if it is not a member yet."""
        if number not in self.members:
            self.members[number] = self.store.subscribe(
                *(self.name, "t"),
                start="earliest",
                orderly=self.orderly,
                invisible_ms=INVISIBLE_MS,
            )
            self.clock.set_for(self.members[number])
            self.held[number] = []
        self.members[number]._turn_at = 0.0  # checks the other members at once
        return self.members[number]

    def poll(self, number: int, most: int) -> None:
        for each in self.member(number).poll(most):
            place = each.queue_id, each.queue_offset
            assert place not in self.acknowledged
            assert self.until.get(place, 0) <= self.clock.ms, "somebody has it"
            if self.orderly:
                before = {(each.queue_id, n) for n in range(each.queue_offset)}
                mine = {(d.queue_id, d.queue_offset) for d in self.held[number]}
                assert before <= self.acknowledged | mine
            self.until[place] = self.clock.ms + INVISIBLE_MS
            self.taken[each] = self.until[place]
            self.held[number].append(each)

    def ack(self, number: int, index: int) -> None:
        held = self.held.get(number)
        if held:
            each = held.pop(index % len(held))
            if self.members[number].ack(each):
                self.acknowledged.add((each.queue_id, each.queue_offset))

    def nack(self, number: int, index: int) -> None:
        held = self.held.get(number)
        if held and self.orderly:  # otherwise it is put to another topic
            each = held.pop(index % len(held))
            if self.members[number].nack(each, 0):
                for place in self.until:
                    if place[0] == each.queue_id and place[1] >= each.queue_offset:
                        self.until[place] = 0

    def wait(self, _: int, span_ms: int) -> None:
        self.clock.ms += span_ms

    def close(self, number: int, _: int) -> None:
        if number in self.members:
            self.members.pop(number).close()
            for each in self.held.pop(number):
                place = each.queue_id, each.queue_offset
                if self.until[place] == self.taken[each]:
                    self.until[place] = 0

    def kill(self, number: int, _: int) -> None:
        """Drop a member: its locks end as by a kill, so what it holds is visible at once."""
        self.members.pop(number, None)
        for each in self.held.pop(number, ()):
            place = each.queue_id, each.queue_offset
            if self.until[place] == self.taken[each]:
                self.until[place] = 0

    def commit(self, number: int, _: int) -> None:
        self.member(number).commit()
        for queue, at in self.committed().items():
            assert {(queue, offset) for offset in range(at)} <= self.acknowledged

    def committed(self) -> dict[int, int]:
        return dict(self.store.groups().get(self.name, {}).get("t", {}))

    def finish(self) -> None:
        """A remaining member gets all remaining messages."""
        for number in range(1, MEMBERS):
            self.kill(number, 0)
        everything = {(queue, n) for queue, end in ENDS.items() for n in range(end)}
        for _ in range(100):
            self.clock.ms += INVISIBLE_MS
            self.poll(0, 50)
            while self.held[0]:
                self.ack(0, 0)
            if self.acknowledged == everything:
                break
        assert self.acknowledged == everything
        self.close(0, 0)
        assert self.committed() == ENDS


NUMBERS: Final = count()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("state")) as store:
        for queue, end in ENDS.items():
            store.put_batch([Message("t", b"%d" % n, queue_id=queue) for n in range(end)])
        assert store.wait_dispatched()
        yield store


@settings(max_examples=30)
@given(steps=STEPS, orderly=st.booleans())
def test_any_order_of_steps(
    filled: Store, steps: list[tuple[str, int, int]], orderly: bool
) -> None:
    group = Group(filled, orderly, f"g{next(NUMBERS)}")
    for word, number, amount in steps:
        getattr(group, word)(number, amount)
    group.finish()
