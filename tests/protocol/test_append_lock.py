"""The append lock of compiled code and plain Python: all orders of their steps, with deaths.

A process that is killed holds no byte any more; words of the page stay as it left them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.protocol import exclusion

COMPILED, PLAIN = "compiled", "plain"
DEATHS: Final = 2
LARGE: Final = ((COMPILED, COMPILED, PLAIN, PLAIN), (COMPILED, COMPILED, COMPILED, PLAIN))
BUGS: Final = {
    "look before the swap": "compiled code does not look for plain Python behind its swap",
    "trust the swap": "compiled code does not look behind that whether its number is there still",
    "look before the store": "plain Python looks for a holder before it says that it comes",
    "release whoever has it": "compiled code that gives way stores 0, in the place of a swap",
    "nobody asks": "a number is taken away from a process that lives",
    "the dead keep it": "a number of a dead process stays",
    "the dead stay in the way": "the second word of a dead process stays",
}


class One(NamedTuple):
    """A process: its step, the number that it saw, and whether it was inside."""

    step: str = "begin"
    seen: int = 0
    done: bool = False


class State(NamedTuple):
    """Numbers are those of processes, from 1; 0 is none."""

    processes: tuple[One, ...]
    holder: int = 0
    plain: int = 0
    byte: int = 0
    deaths: int = 0

    def with_one(self, me: int, one: One, **words: int) -> State:
        processes = list(self.processes)
        processes[me - 1] = one
        return self._replace(processes=tuple(processes), **words)

    def is_dead(self, number: int) -> bool:
        return self.processes[number - 1].step == "dead"


def compiled(s: State, me: int, bug: str) -> Iterator[State]:
    """The next step of compiled code; more than one where it depends on how long it slept."""
    one = s.processes[me - 1]
    step, seen, done = one
    if step == "begin" and not done:
        if not s.plain:
            yield s.with_one(me, One("swap"))
        elif bug != "the dead stay in the way":
            yield s.with_one(me, One("take byte"))
        if s.holder and bug != "the dead keep it":
            yield s.with_one(me, One("ask", s.holder))
    elif step == "swap":
        missed = One("begin", 0, done)
        behind = "inside" if bug == "look before the swap" else "look"
        yield s.with_one(me, missed if s.holder else One(behind), holder=s.holder or me)
    elif step == "ask":
        is_dead = bug == "nobody asks" or s.is_dead(seen)
        yield s.with_one(me, One("take number", seen) if is_dead else One())
    elif step == "take number":
        took = s.holder == seen
        yield s.with_one(me, One("look") if took else One(), holder=me if took else s.holder)
    else:
        yield from _behind_the_swap(s, me, bug)


def _behind_the_swap(s: State, me: int, bug: str) -> Iterator[State]:
    step = s.processes[me - 1].step
    if step == "look":
        checked = "inside" if bug == "trust the swap" else "look again"
        yield s.with_one(me, One("give way" if s.plain else checked))
    elif step == "look again":
        yield s.with_one(me, One("inside" if s.holder == me else "give way"))
    elif step in ("give way", "inside"):
        kept = s.holder != me and bug != "release whoever has it"
        yield s.with_one(me, One(done=step == "inside"), holder=s.holder if kept else 0)
    elif step == "take byte":
        yield s.with_one(me, One() if s.byte else One("clear"), byte=s.byte or me)
    elif step == "clear":
        yield s.with_one(me, One("give byte"), plain=0)
    elif step == "give byte":
        yield s.with_one(me, One(), byte=0)


def plain(s: State, me: int, bug: str) -> Iterator[State]:
    """The next step of plain Python."""
    step, seen, done = s.processes[me - 1]
    early = bug == "look before the store"
    if step == "begin" and not done and not s.byte:
        yield s.with_one(me, One("look" if early else "store"), byte=me)
    elif step == "store":
        yield s.with_one(me, One("inside" if early else "look"), plain=me)
    elif step == "look":
        free = One("store" if early else "inside")
        yield s.with_one(me, One("ask", s.holder) if s.holder else free)
    elif step == "ask":
        if s.holder == seen and (bug == "nobody asks" or s.is_dead(seen)):
            if bug != "the dead keep it":
                yield s.with_one(me, One("take number", seen))
        else:
            yield s.with_one(me, One("look"))
    elif step == "take number":
        yield s.with_one(me, One("look"), holder=0)
    elif step == "inside":
        yield s.with_one(me, One("give byte"), plain=0)
    elif step == "give byte":
        yield s.with_one(me, One(done=True), byte=0)


def successors(s: State, kinds: tuple[str, ...], bug: str) -> Iterator[State]:
    for me, (kind, one) in enumerate(zip(kinds, s.processes, strict=True), 1):
        if one.step == "dead":
            continue
        yield from (compiled if kind == COMPILED else plain)(s, me, bug)
        if s.deaths < DEATHS and not one.done:
            byte = 0 if s.byte == me else s.byte
            yield s.with_one(me, One("dead"), byte=byte, deaths=s.deaths + 1)


def problem(kinds: tuple[str, ...], bug: str = "") -> str | None:
    """What can go wrong: two that are inside, or one that nobody lets in any more."""
    return exclusion.problem(
        State((One(),) * len(kinds)),
        lambda s: successors(s, kinds, bug),
        lambda s: sum(one.step == "inside" for one in s.processes),
        lambda s: all(one.done or one.step == "dead" for one in s.processes),
    )


@pytest.mark.parametrize(
    "kinds",
    [
        (COMPILED, COMPILED, PLAIN),
        (COMPILED, PLAIN, PLAIN),
        (COMPILED, COMPILED, COMPILED),
        *LARGE,
    ],
)
def test_one_at_a_time_is_inside_and_nobody_is_kept_out(kinds: tuple[str, ...]) -> None:
    assert problem(kinds) is None


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert any(problem(kinds, bug) for kinds in LARGE)
