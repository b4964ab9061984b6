"""Any order of polls, outcomes, time-outs, resets, joins, leaves and deaths keeps the guarantees.

The steps are made by members of a group, and by a model of it: a few sets and a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Final, TypeAlias

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog import Delivery, GroupConsumer, Message, Store
from plugins.queues.tests.groups.support import Clock, open_store
from plugins.queues.tests.groups.test_state_file import Killed, Words

MEMBERS = 3
INVISIBLE_MS = 100
ENDS: Final = {0: 7, 1: 3, 3: 5}
"""The number of messages in each queue."""
EVERYTHING: Final = {(queue, at) for queue, end in ENDS.items() for at in range(end)}
Origin: TypeAlias = tuple[int, int]
"""Queue id and queue offset, also of a message that comes from the retry topic."""
Record: TypeAlias = tuple[str, int, int]
"""Topic, queue id and queue offset."""

KILLED_IN = st.sampled_from(["kill in poll", "kill in ack", "kill in nack", "kill in commit"])
WHO = st.integers(0, MEMBERS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("poll"), WHO, st.integers(1, 5)),
        st.tuples(st.just("poll"), WHO, st.integers(1, 5)),
        st.tuples(st.just("ack"), WHO, st.integers(0, 9)),
        st.tuples(st.just("nack"), WHO, st.integers(0, 9)),
        st.tuples(st.just("renew"), WHO, st.integers(0, 9)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 2 * INVISIBLE_MS)),
        st.tuples(st.just("reset"), st.sampled_from(sorted(ENDS)), st.integers(0, 7)),
        st.tuples(st.sampled_from(["close", "kill", "commit"]), WHO, st.just(0)),
        st.tuples(KILLED_IN, WHO, st.integers(0, 40)),
    ),
    max_size=40,
)


def origin_of(each: Delivery) -> Origin:
    queue, _, offset = bytes(each.message.body).decode().partition("-")
    return int(queue), int(offset)


def record_of(each: Delivery) -> Record:
    return each.topic, each.queue_id, each.queue_offset


@attrs.define
class Group:
    """A group, and the messages that its members have.

    :ivar until: time in ms from which each record may be handed out again
    :ivar gone: records that were acknowledged
    :ivar done: the messages of these, and those that a reset passed over
    :ivar returned: messages that may be in the retry topic
    :ivar doubtful: messages whose acknowledgement a kill has ended
    """

    store: Store
    orderly: bool
    name: str
    clock: Clock = attrs.field(factory=Clock)
    members: dict[int, GroupConsumer] = attrs.field(factory=dict)
    held: dict[int, list[Delivery]] = attrs.field(factory=dict)
    until: dict[Record, int] = attrs.field(factory=dict)
    taken: dict[Delivery, int] = attrs.field(factory=dict)
    gone: set[Record] = attrs.field(factory=set)
    done: set[Origin] = attrs.field(factory=set)
    returned: set[Origin] = attrs.field(factory=set)
    doubtful: set[Origin] = attrs.field(factory=set)

    def member(self, number: int) -> GroupConsumer:
        """The member of this number; it joins if it is not a member yet."""
        if number not in self.members:
            self.members[number] = self.store.subscribe(
                *(self.name, "t"),
                start="earliest",
                orderly=self.orderly,
                invisible_ms=INVISIBLE_MS,
                max_attempts=1000,
            )
            self.clock.set_for(self.members[number])
            self.held[number] = []
        self.members[number]._turn_at = 0.0  # checks the other members at once
        return self.members[number]

    def chosen(self, number: int, index: int) -> Delivery | None:
        held = self.held.get(number)
        return held.pop(index % len(held)) if held else None

    # --- steps ---

    def poll(self, number: int, most: int) -> None:
        for each in self.member(number).poll(most):
            record = record_of(each)
            assert record not in self.gone
            assert self.until.get(record, 0) <= self.clock.ms, "somebody has it"
            if self.orderly:
                before = {(each.queue_id, at) for at in range(each.queue_offset)}
                assert before <= self.done | self.doubtful | set(map(origin_of, self.held[number]))
            self.until[record] = self.taken[each] = self.clock.ms + INVISIBLE_MS
            self.held[number].append(each)

    def ack(self, number: int, index: int) -> None:
        each = self.chosen(number, index)
        if each is not None and self.members[number].ack(each):
            self.gone.add(record_of(each))
            self.done.add(origin_of(each))

    def nack(self, number: int, index: int) -> None:
        each = self.chosen(number, index)
        if each is None or not self.members[number].nack(each, index * 10):
            return
        self.until[record_of(each)] = self.clock.ms + index * 10
        if self.orderly:
            for record in self.until:
                if record[:2] == record_of(each)[:2] and record[2] > each.queue_offset:
                    self.until[record] = 0
        else:
            self.returned.add(origin_of(each))

    def renew(self, number: int, index: int) -> None:
        """In the model, this record only; those of its poll may be renewed with it."""
        each, span_ms = self.chosen(number, index), index * INVISIBLE_MS // 3
        if each is not None:
            self.held[number].append(each)
            if self.members[number].renew(each, span_ms):
                self.until[record_of(each)] = self.taken[each] = self.clock.ms + span_ms

    def wait(self, _: int, span_ms: int) -> None:
        self.clock.ms += span_ms

    def reset(self, queue: int, offset: int) -> None:
        """What comes before is passed over, and the rest is handed out, also what was."""
        offset = min(offset, ENDS[queue])
        self.store.commit_offsets([(self.name, "t", {queue: offset})])
        self.done |= {(queue, at) for at in range(offset)}
        for at in range(offset, ENDS[queue]):
            self.done.discard((queue, at))
            self.doubtful.discard((queue, at))
            self.gone.discard(("t", queue, at))
        for at in range(ENDS[queue]):
            self.until["t", queue, at] = 0

    def close(self, number: int, _: int) -> None:
        if number in self.members:
            self.members.pop(number).close()
            self.dropped(number)

    def kill(self, number: int, _: int) -> None:
        """Drop a member: its locks end as by a kill, so what it holds is visible at once."""
        self.members.pop(number, None)
        self.dropped(number)

    def dropped(self, number: int) -> None:
        for each in self.held.pop(number, ()):
            if self.until[record_of(each)] == self.taken[each]:
                self.until[record_of(each)] = 0

    def commit(self, number: int, _: int) -> None:
        self.member(number).commit()
        self.check_committed()

    def kill_in(self, call: str, number: int, most: int) -> None:
        """A kill in a call, after so many words of the state were stored."""
        member = self.member(number)
        file: Any = member._state.file
        file.words = words = Words(file.words, most)
        each = self.chosen(number, most) if call in ("ack", "nack") else None
        with suppress(Killed):
            if call == "poll":
                member.poll(3)
            elif call == "commit":
                member.commit()
            elif each is not None:
                (member.ack if call == "ack" else member.nack)(each)
        words.most = None
        if each is not None:
            self.held[number].append(each)
            (self.doubtful if call == "ack" else self.returned).add(origin_of(each))
            if self.orderly and call == "nack":
                self.until.update(dict.fromkeys(self.until, 0))
        del member, file, words
        self.kill(number, 0)

    # --- checks ---

    def check_committed(self) -> None:
        for queue, at in self.committed().items():
            passed = {(queue, offset) for offset in range(at)}
            assert passed <= self.done | self.returned | self.doubtful

    def committed(self) -> dict[int, int]:
        return dict(self.store.groups().get(self.name, {}).get("t", {}))

    def finish(self) -> None:
        """A remaining member gets all remaining messages."""
        for number in range(1, MEMBERS):
            self.kill(number, 0)
        for _ in range(20):
            self.clock.ms += INVISIBLE_MS
            self.poll(0, 50)
            while self.held[0]:
                self.ack(0, 0)
            self.commit(0, 0)
        assert self.done | self.doubtful == EVERYTHING
        self.close(0, 0)
        assert self.committed() == ENDS


NUMBERS: Final = count()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("state")) as store:
        for queue, end in ENDS.items():
            store.put_batch(
                [Message("t", b"%d-%d" % (queue, at), queue_id=queue) for at in range(end)]
            )
        assert store.wait_dispatched()
        yield store


@settings(max_examples=60)
@given(steps=STEPS, orderly=st.booleans())
def test_any_order_of_steps(
    filled: Store, steps: list[tuple[str, int, int]], orderly: bool
) -> None:
    group = Group(filled, orderly, f"g{next(NUMBERS)}")
    for word, number, amount in steps:
        if word.startswith("kill in "):
            group.kill_in(word.removeprefix("kill in "), number, amount)
        else:
            getattr(group, word)(number, amount)
    group.finish()
