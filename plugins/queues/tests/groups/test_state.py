"""Any order of polls, outcomes, time-outs, joins, leaves and deaths keeps the guarantees."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TypeAlias

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_queues.finding.results import PlacedResult
from lakelog_queues.groups.consumer import GroupAccess, GroupConsumer
from lakelog_queues.groups.delivery import Delivery
from lakelog_queues.groups.members import share_of
from lakelog_queues.groups.options import GroupOptions
from plugins.queues.tests.consumers.support import Queues, a_table
from plugins.queues.tests.groups.support import Clock

MEMBERS = 3
INVISIBLE_MS = 100
Place: TypeAlias = tuple[int, int]
"""Queue id and queue offset."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("poll"), st.integers(0, MEMBERS - 1), st.integers(1, 5)),
        st.tuples(st.just("poll"), st.integers(0, MEMBERS - 1), st.integers(1, 5)),
        st.tuples(st.just("ack"), st.integers(0, MEMBERS - 1), st.integers(0, 9)),
        st.tuples(st.just("nack"), st.integers(0, MEMBERS - 1), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 2 * INVISIBLE_MS)),
        st.tuples(st.just("close"), st.integers(0, MEMBERS - 1), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, MEMBERS - 1), st.just(0)),
        st.tuples(st.just("commit"), st.integers(0, MEMBERS - 1), st.just(0)),
    ),
    max_size=40,
)


@attrs.define
class Group:
    """A group over queues in memory, and the messages that its members have.

    :ivar until: time in ms from which each message may be handed out again
    """

    path: Path
    queues: Queues
    orderly: bool
    clock: Clock = attrs.field(factory=Clock)
    members: dict[int, GroupConsumer] = attrs.field(factory=dict)
    held: dict[int, list[Delivery]] = attrs.field(factory=dict)
    until: dict[Place, int] = attrs.field(factory=dict)
    acknowledged: set[Place] = attrs.field(factory=set)

    def offsets(self) -> OffsetTable:
        return a_table(self.path)

    def member(self, number: int) -> GroupConsumer:
        """The member of this number; it joins if it is not a member yet."""
        if number not in self.members:
            options = GroupOptions.of(
                *("g", "T"), start="earliest", orderly=self.orderly, invisible_ms=INVISIBLE_MS
            )
            access = GroupAccess(
                *(RealFileSystem(), self.path, self.get, self.queues.access(), self.offsets()),
                *(self.refused, self.clock.now_ms),
            )
            self.members[number] = GroupConsumer(options, access)
            self.held[number] = []
        self.members[number]._turn_at = 0.0  # checks the other members at once
        return self.members[number]

    def get(
        self, topic: str, queue_id: int, offset: int, max_messages: int, *, tags: str | None
    ) -> PlacedResult:
        found = self.queues.get(topic, queue_id, offset, max_messages, tags=tags)
        offsets = [each.queue_offset for each in found.messages]
        bounds = found.min_offset, found.max_offset
        return PlacedResult(found.status, found.messages, found.next_offset, *bounds, offsets)

    def refused(self, message: object) -> None:
        raise AssertionError(f"{message} is put, without any reason")

    def poll(self, number: int, most: int) -> None:
        for each in self.member(number).poll(most):
            place = each.queue_id, each.queue_offset
            assert place not in self.acknowledged
            assert self.until.get(place, 0) <= self.clock.ms, "somebody has it"
            if self.orderly:
                before = {(each.queue_id, n) for n in range(each.queue_offset)}
                mine = {(d.queue_id, d.queue_offset) for d in self.held[number]}
                assert before <= self.acknowledged | mine
            self.until[place] = each.visible_ms
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
                if self.until[place] == each.visible_ms:
                    self.until[place] = 0

    def kill(self, number: int, _: int) -> None:
        """End a member like a kill: its locks and its connection end, and nothing else happens."""
        if number in self.members:
            dead = self.members.pop(number)
            dead._closed = True
            dead._locks.close()
            dead._database.close()
            del self.held[number]

    def commit(self, number: int, _: int) -> None:
        self.member(number).commit()
        self.check_committed()

    def check_committed(self) -> None:
        for queue, at in self.offsets().committed("g", "T").items():
            assert {(queue, offset) for offset in range(at)} <= self.acknowledged

    def finish(self) -> None:
        """A remaining member gets all remaining messages."""
        for number in range(1, MEMBERS):
            self.kill(number, 0)
        for _ in range(100):
            self.clock.ms += INVISIBLE_MS
            self.poll(0, 50)
            while self.held[0]:
                self.ack(0, 0)
        ends = {queue: len(each) for queue, each in self.queues.held.items()}
        everything = {(queue, n) for queue, end in ends.items() for n in range(end)}
        assert self.acknowledged == everything
        self.close(0, 0)
        assert self.offsets().committed("g", "T") == ends


@settings(deadline=None, max_examples=30)
@given(STEPS, st.booleans())
def test_any_order_of_steps(steps: list[tuple[str, int, int]], orderly: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        group = Group(Path(folder), Queues(7, 3, 0, 5), orderly)
        for word, number, amount in steps:
            getattr(group, word)(number, amount)
        group.finish()


# --- shares: whole, disjoint, even, and the same for every member ---


ANY_MEMBERS = st.sets(st.integers(1, 1 << 40), min_size=1, max_size=20)
ANY_QUEUES = st.sets(st.tuples(st.sampled_from(["a", "b", "%RETRY%g"]), st.integers(0, 40)))


@given(ANY_MEMBERS, ANY_QUEUES)
def test_each_queue_has_one_member_and_shares_are_even(
    members: set[int], queues: set[tuple[str, int]]
) -> None:
    shares = [share_of(each, members, queues) for each in members]
    assert sorted(queue for share in shares for queue in share) == sorted(queues)
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1


@given(ANY_MEMBERS, ANY_QUEUES, st.randoms())
def test_all_members_find_the_same(
    members: set[int], queues: set[tuple[str, int]], chance: random.Random
) -> None:
    mixed, others = list(members), list(queues)
    chance.shuffle(mixed)
    chance.shuffle(others)
    for each in members:
        assert share_of(each, members, queues) == share_of(each, mixed, others)


@given(ANY_MEMBERS, ANY_QUEUES)
def test_who_is_no_member_has_nothing(members: set[int], queues: set[tuple[str, int]]) -> None:
    assert share_of(0, members, queues) == []
