"""The words of a group's state: kills between any two stores, and how many words are read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final

import attrs
import pytest

from lakelog import Delivery, GroupConsumer, Store
from lakelog_queues.groups.state import _AFTER, _RESERVES
from plugins.queues.tests.groups.support import bodies, fill

COUNT: Final = 6
CALLS: Final[dict[str, Callable[[GroupConsumer, list[Delivery]], object]]] = {
    "poll": lambda member, _: member.poll(2),
    "ack": lambda member, held: member.ack(*held),
    "nack": lambda member, held: member.nack(held[1], 0),
    "restart": lambda member, _: member._state.restart({("t", 0): 0}),
    "close": lambda member, _: member._state.leave(0),
}


class Killed(BaseException):
    """Nothing of the member runs after it."""


@attrs.define
class Words:
    """Words that count what is read, and of which no more than ``most`` are stored."""

    words: Any
    most: int | None = None
    read: int = 0

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, at: Any) -> Any:
        found = self.words[at]
        self.read += len(found) if isinstance(at, slice) else 1
        return found

    def __setitem__(self, at: Any, value: Any) -> None:
        if self.most is not None:
            if not self.most:
                raise Killed
            self.most -= 1
        self.words[at] = value


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_kill_between_any_two_stores_leaves_a_whole_state(
    store: Store, call: str, orderly: bool, is_alone: bool
) -> None:
    fill(store, COUNT, queues=1)
    for most in count():
        group = f"g{most}"
        member = store.subscribe(group, "t", orderly=orderly)
        held = [] if call == "poll" else member.poll(3)
        others = [] if is_alone else [store.subscribe(group, "t", orderly=orderly)]
        file: Any = member._state.file
        file.words = words = Words(file.words, most)
        with suppress(Killed):
            CALLS[call](member, held)
        is_over, words.most = bool(words.most), None
        del member, file, words  # its locks are released
        with others.pop() if others else store.subscribe(group, "t", orderly=orderly) as other:
            other._turn_at = 0.0  # it looks for dead members at once
            left: list[Delivery] = []
            while found := other.poll(2):
                assert other.ack(*found)
                left += found
        expected = list(range(COUNT))
        assert sorted(bodies(left)) in (expected, expected[3:] if call == "ack" else expected)
        assert store.groups()[group]["t"] == {0: COUNT}
        if is_over:
            break
    assert most > 1


def test_taking_over_costs_by_the_messages(store: Store) -> None:
    """Not by the leases that a dead member has left."""
    fill(store, 400, queues=1)
    read = []
    for size in (100, 400):
        group = f"g{size}"
        dead = store.subscribe(group, "t")
        for _ in range(size):
            assert len(dead.poll(1)) == 1
        del dead
        with store.subscribe(group, "t") as member:
            file: Any = member._state.file
            file.words = words = Words(file.words)
            for _ in range(size // 4):
                assert member.ack(*member.poll(4))
            read.append(words.read)
            file.words = words.words
    assert read[1] < 6 * read[0]


def test_a_due_lease_that_was_freed_is_left_out(store: Store) -> None:
    """Its place may be the reserve of another lease, with many acknowledged messages."""
    fill(store, 60, queues=1)
    with store.subscribe("g", "t") as member:
        held = member.poll(60)
        assert member.ack(*held[:-1])
        words, state = member._state.file.words, member._state
        reserves = [words[state._place + _RESERVES]]
        while after := words[reserves[-1] + _AFTER]:
            reserves.append(after)
        now_ms = member._access.now_ms()
        assert state.claim(reserves, COUNT, 1, now_ms, now_ms) == []
        assert member.ack(held[-1])
