"""The protocol of equal processes, walked in every order; and the bugs that the walk has to find.

A state is a string of bytes, one for each word and each local variable. A model says which states
can follow; the walk visits each state once, the nearest first. It checks three things: the model's
own rule holds in each state; a state in which nobody can make a step is an end; and an end can be
reached from each state without another death, so that nobody waits or turns in a circle for ever.

The method is explicit-state model checking, as in TLC (Lamport, "Specifying Systems", chapter 14).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Protocol

import attrs
import pytest

from tests.protocol import append_steps, joining
from tests.protocol.appending import Appending
from tests.protocol.joining import Joining


class Model(Protocol):
    """What can happen, step by step."""

    def start(self) -> bytes:
        """The first state."""

    def successors(self, state: bytes) -> Iterable[tuple[str, bytes]]:
        """What may happen next: the step's name, and the state behind it."""

    def is_death(self, step: str) -> bool:
        """Whether it is the end of a process, which nobody may wait for."""

    def wrong(self, state: bytes) -> str | None:
        """The rule that ``state`` breaks, if it breaks one."""

    def is_end(self, state: bytes) -> bool:
        """Whether nothing needs to follow."""


class Broken(Exception):  # it is a finding, not an error of the explorer
    """A state is wrong; the message has the steps that lead there."""


@attrs.frozen
class Explored:
    """How much was walked.

    :ivar states: all different states
    :ivar ends: states of which nothing needs to follow
    """

    states: int
    ends: int


class TooManyStates(Exception):  # the same
    """The model is larger than it was said to be: nothing is known of the rest."""


def explore(model: Model, most_states: int = 20_000_000) -> Explored:
    """Walk all states of ``model``.

    Raises :class:`Broken` at the first state that is wrong.
    """
    start = model.start()
    numbers: dict[bytes, int] = {start: 0}
    states, came_from, ends = [start], array("I", [0]), 0
    froms, tos, end_numbers = array("I"), array("I"), array("I")
    at = 0
    while at < len(states):
        state = states[at]
        rule = model.wrong(state)
        if rule is not None:
            raise _broken(model, states, came_from, at, rule)
        is_end, is_stuck = model.is_end(state), True
        for step, after in model.successors(state):
            number = numbers.setdefault(after, len(states))
            if number == len(states):
                states.append(after)
                came_from.append(at)
            if not model.is_death(step):
                is_stuck = False
                froms.append(at)
                tos.append(number)
        if is_end:
            ends += 1
            end_numbers.append(at)
        elif is_stuck:
            raise _broken(model, states, came_from, at, "somebody sleeps for ever")
        if len(states) > most_states:
            raise TooManyStates(f"{len(states)} states, and {at} of them seen")
        at += 1
    lost = _without_an_end(len(states), froms, tos, end_numbers)
    if lost is not None:
        raise _broken(model, states, came_from, lost, "no end can be reached from here")
    return Explored(len(states), ends)


def _without_an_end(count: int, froms: array[int], tos: array[int], ends: array[int]) -> int | None:
    """The nearest state from which no end can be reached: walk back from all ends."""
    heads, nexts = array("q", [-1]) * count, array("q")
    for edge, to in enumerate(tos):
        nexts.append(heads[to])
        heads[to] = edge
    seen = bytearray(count)
    waiting = list(ends)
    for number in waiting:
        seen[number] = 1
    while waiting:
        edge = heads[waiting.pop()]
        while edge >= 0:
            number = froms[edge]
            if not seen[number]:
                seen[number] = 1
                waiting.append(number)
            edge = nexts[edge]
    lost = seen.find(0)
    return None if lost < 0 else lost


def _broken(model: Model, states: list[bytes], came_from: array[int], at: int, rule: str) -> Broken:
    steps: list[str] = []
    while at:
        before = came_from[at]
        steps.append(
            next(name for name, after in model.successors(states[before]) if after == states[at])
        )
        at = before
    return Broken("\n".join([rule, *(f"  {step}" for step in reversed(steps))]))


# --- the models ---


TWO_PROCESSES = [
    pytest.param(Appending(2, *more), marks=pytest.mark.sample(1))
    for more in ((1, 2, 1), (2, 1, 1))
]
THREE_PROCESSES = [
    pytest.param(Appending(3, 1, deaths, errors), marks=pytest.mark.slow)
    for deaths, errors in ((0, 0), (1, 1), (2, 1))
]

JOINING = [
    pytest.param(Joining(*each), marks=pytest.mark.sample(1))
    for each in ((2, 2, 1, 1), (3, 1, 1, 0))
]
JOINING_AT_LENGTH = [
    pytest.param(Joining(*each), marks=pytest.mark.slow) for each in ((2, 2, 2, 1), (3, 1, 1, 1))
]

# The smallest model that has each bug; two need a third process.
SMALLEST = {
    "half a repair": Appending(2, 1, 2),
    "blank without an intent": Appending(2, 2, 1),
    "sync not marked": Appending(2, 1, 1, 1),
    "mark not looked at": Appending(2, 1, 1, 1),
    "no second look": Appending(3, 1, 0),
    "flag not raised again": Appending(3, 1, 0),
}
OF_THREE = [bug for bug, model in SMALLEST.items() if model.processes == 3]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", [*TWO_PROCESSES, *THREE_PROCESSES], ids=str)
def test_no_order_of_appends_syncs_and_deaths_is_wrong(model: Appending) -> None:
    walked = explore(model)
    assert walked.ends > 100 or not model.deaths
    assert walked.states > 10_000


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=pytest.mark.slow if bug in OF_THREE else ())
        for bug in append_steps.BUGS
    ],
)
def test_a_bug_in_the_append_section_is_found(bug: str) -> None:
    small = SMALLEST.get(bug, Appending(2, 1, 1))
    with pytest.raises(Broken, match="\n  0 begin\n"):
        explore(Appending(small.processes, small.puts, small.deaths, small.errors, bug))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", [*JOINING, *JOINING_AT_LENGTH], ids=str)
def test_no_order_of_joins_and_deaths_is_wrong(model: Joining) -> None:
    assert explore(model).states > 100_000


@pytest.mark.parametrize("bug", joining.BUGS)
def test_a_bug_in_joining_is_found(bug: str) -> None:
    with pytest.raises(Broken, match="begin"):
        explore(Joining(2, 2, 0, 1, bug))
