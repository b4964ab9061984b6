"""Appends without a lock by a process that is alone, and others that join: all orders of steps.

The processor of the process alone keeps its stores in a buffer, in their order, so that a later
read may pass them; a barrier empties the buffer. Process 0 is alone at first, the others join,
append by the lock, and leave. Process 0 may die.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.protocol import exclusion

APPENDS: Final = 3
BUGS: Final = {
    "no barrier": "a process that has joined does not have the others execute a barrier",
    "no second look": "a process alone does not look for others behind its store",
    "no wait": "a process that has joined does not wait for the append of the one alone",
    "the dead stay": "the number of a dead process is waited for",
    "forgets early": "a process takes itself for alone while another has joined",
}


class State(NamedTuple):
    """``steps`` of the processes; ``buffer`` has the stores to ``alone`` that are under way."""

    steps: tuple[str, ...]
    appends: int = 0
    buffer: tuple[int, ...] = ()
    alone: int = 0
    several: int = 0
    lock: int = -1

    def at(self, me: int, step: str, **words: object) -> State:
        steps = (*self.steps[:me], step, *self.steps[me + 1 :])
        return self._replace(steps=steps, **words)  # type: ignore[arg-type]  # mypy does not type the keywords of _replace


def first(s: State, bug: str) -> Iterator[State]:
    """The steps of the process that is alone at first."""
    step = s.steps[0]
    if s.buffer:
        yield s._replace(alone=s.buffer[0], buffer=s.buffer[1:])
    if step == "begin":
        yield s.at(0, "over" if s.appends == APPENDS else "lock" if s.several else "store")
        if s.several and (bug == "forgets early" or {*s.steps[1:]} <= {"outside", "over"}):
            yield s._replace(several=0)
    else:
        yield from _append(s, step, bug)
    if step not in ("over", "dead"):
        dead = s.at(0, "dead", lock=-1 if s.lock == 0 else s.lock)
        yield dead._replace(alone=(s.alone, *s.buffer)[-1], buffer=())


def _append(s: State, step: str, bug: str) -> Iterator[State]:
    if step == "store":
        yield s.at(0, "inside" if bug == "no second look" else "look", buffer=(*s.buffer, 1))
    elif step == "look":
        buffer = (*s.buffer, 0) if s.several else s.buffer
        yield s.at(0, "lock" if s.several else "inside", buffer=buffer)
    elif step == "inside":
        yield s.at(0, "begin", appends=s.appends + 1, buffer=(*s.buffer, 0))
    elif step == "lock" and s.lock < 0:
        yield s.at(0, "inside by lock", lock=0)
    elif step == "inside by lock":
        yield s.at(0, "begin", appends=s.appends + 1, lock=-1)


def joining(s: State, me: int, bug: str) -> Iterator[State]:
    """The next step of a process that joins, appends once and leaves."""
    step = s.steps[me]
    if step == "outside":
        yield s.at(me, "barrier", several=1)
    elif step == "barrier":
        empty = bug == "no barrier"
        alone, buffer = (s.alone, s.buffer) if empty else ((s.alone, *s.buffer)[-1], ())
        yield s.at(me, "wait", alone=alone, buffer=buffer)
    elif step == "wait":
        is_dead = s.steps[0] == "dead" and bug != "the dead stay"
        if not s.alone or is_dead or bug == "no wait":
            yield s.at(me, "lock")
    elif step == "lock" and s.lock < 0:
        yield s.at(me, "inside", lock=me)
    elif step == "inside":
        yield s.at(me, "over", lock=-1)


def successors(s: State, bug: str) -> Iterator[State]:
    yield from first(s, bug)
    for me in range(1, len(s.steps)):
        yield from joining(s, me, bug)


def problem(count: int, bug: str = "") -> str | None:
    """Two that are inside, or one that waits for ever; ``None`` if there is no such order."""
    return exclusion.problem(
        State(("begin", *["outside"] * count)),
        lambda s: successors(s, bug),
        lambda s: sum(step.startswith("inside") for step in s.steps),
        lambda s: {*s.steps} <= {"over", "dead"},
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_at_a_time_is_inside(count: int) -> None:
    assert problem(count) is None


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert problem(2, bug)
