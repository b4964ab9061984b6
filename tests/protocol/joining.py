"""A model of joining and leaving a store, with RocketMQ beside it.

Byte 0 of the file ``lock`` is held by each process that has joined, shared; RocketMQ asks for it
exclusively. Who knows that the page is valid shows that by a second byte, and who does not leave
yet by a third one. A fourth is held, exclusively, by a process that may be alone: that makes the
page, or closes the store. A process that holds byte 0 trusts the page if another one shows that it
may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import attrs

State: TypeAlias = bytearray
Step: TypeAlias = "Callable[[Joining, State, int], tuple[str, ...]]"

LOG_END, PAGE_END, PAGE_WHOLE, SET_UP_LOCK, CLEAN, DEATHS, FAILURES, WRONG = range(8)
WORDS: Final = 8
PC, HELD, ROUNDS, SHOWN, STAYS = range(5)
LOCALS: Final = 5
SHARED, EXCLUSIVE = 1, 2

BUGS: Final = {
    "no set-up lock": "processes find out whether they are alone without the lock for it",
    "page made first": "the page is made before it is known that nobody else is there",
    "page is asked first": "who joins does not look again once it has the shared lock",
    "page is not asked": "who is not alone trusts the page, whoever the other one is",
    "last one is not asked": "who leaves writes the mark of a clean stop without being alone",
    "last one asks first": "who leaves looks whether others stay before it stays no longer",
    "last one does not wait": "who leaves last does not wait for those that are leaving",
    "stays too soon": "who has only joined is said to stay, but may fail to open",
    "page is trusted": "who finds itself alone goes on with the page that is there",
    "open is undone": "an open that fails after others were let in says that the store is stopped",
    "lets go between": "the exclusive lock is let go before the shared one is taken",
}
"""What can be planted, and what it means."""


@attrs.frozen
class Joining:
    """The model.

    :ivar processes: how many there are, besides RocketMQ
    :ivar rounds: how often each joins, appends and leaves
    :ivar deaths: how many may die, at most; one that is dead begins its next round
    :ivar failures: how many opens may fail after the process has joined, at most
    :ivar bug: one of :data:`BUGS`, or nothing
    """

    processes: int
    rounds: int
    deaths: int
    failures: int = 0
    bug: str = ""

    def start(self) -> bytes:
        """Nobody is there; the last one of all who were has stopped cleanly."""
        state = bytearray(WORDS + LOCALS * (self.processes + 1))
        state[DEATHS], state[CLEAN], state[FAILURES] = self.deaths, 1, self.failures
        for at in self._all():
            state[at + PC] = _NUMBERS["begin"]
        state[self._rocketmq + PC] = _NUMBERS["rocketmq begin"]
        return bytes(state)

    @property
    def _rocketmq(self) -> int:
        return WORDS + LOCALS * self.processes

    def _all(self) -> range:
        return range(WORDS, self._rocketmq, LOCALS)

    def successors(self, state: bytes) -> Iterator[tuple[str, bytes]]:
        """Each makes a step, or dies and begins anew."""
        for at in (*self._all(), self._rocketmq):
            name = _NAMES[state[at + PC]]
            if name in _ENDS:
                continue
            who = (at - WORDS) // LOCALS
            trial = bytearray(state)
            following = _STEPS[name](self, trial, at)
            for each in following:
                after = bytearray(trial)
                after[at + PC] = _NUMBERS[each]
                yield f"{who} {name}", bytes(after)
            if state[DEATHS]:
                after = bytearray(state)
                after[DEATHS] -= 1
                after[at + HELD] = after[at + SHOWN] = after[at + STAYS] = 0
                if after[SET_UP_LOCK] == at:
                    after[SET_UP_LOCK] = 0
                after[at + PC] = _NUMBERS["rocketmq begin" if at == self._rocketmq else "next"]
                yield f"{who} dies before {name}", bytes(after)

    def wrong(self, state: bytes) -> str | None:
        """The rule that is broken."""
        if state[WRONG]:
            return _RULES[state[WRONG]]
        held = [state[at + HELD] for at in (*self._all(), self._rocketmq)]
        if EXCLUSIVE in held and sum(map(bool, held)) > 1:
            return "the kernel has given an exclusive lock beside another"
        if state[DEATHS] == self.deaths and not state[CLEAN] and self.is_end(state):
            return "all have left, and nobody has closed the store"
        return None

    def is_death(self, step: str) -> bool:
        """Those steps have a name that says so."""
        return " dies before " in step

    def is_end(self, state: bytes) -> bool:
        """Everybody has done all rounds."""
        return all(_NAMES[state[at + PC]] in _ENDS for at in (*self._all(), self._rocketmq))

    def take(self, state: State, at: int, kind: int) -> bool:
        """Ask the kernel for byte 0; what was held stays where it says no."""
        others = [state[each + HELD] for each in (*self._all(), self._rocketmq) if each != at]
        if any(others) and (kind == EXCLUSIVE or EXCLUSIVE in others):
            return False
        state[at + HELD] = kind
        return True

    def others(self, state: State, at: int, what: int) -> bool:
        """Whether another process has the byte for ``what``."""
        return any(state[each + what] for each in self._all() if each != at)


_RULES: Final = {
    1: "a process appends where the page does not say the end of the log",
    2: "a recovery beside a living process",
    3: "a process joined a page that is not whole",
    4: "the mark of a clean stop stands while somebody appends",
    5: "the last process that leaves finds that the store is marked as stopped already",
}


def _begin(m: Joining, s: State, p: int) -> tuple[str, ...]:
    return ("done",) if s[p + ROUNDS] >= m.rounds else ("look",)


def _next(_m: Joining, s: State, p: int) -> tuple[str, ...]:
    s[p + ROUNDS] += 1
    return ("begin",)


def _look(m: Joining, s: State, p: int) -> tuple[str, ...]:
    return ("share beside",) if m.others(s, p, SHOWN) else ("set up lock",)


def _share_beside(m: Joining, s: State, p: int) -> tuple[str, ...]:
    return ("look again",) if m.take(s, p, SHARED) else ("set up lock",)


def _look_again(m: Joining, s: State, p: int) -> tuple[str, ...]:
    return ("join",) if m.others(s, p, SHOWN) or m.bug == "page is asked first" else ("back",)


def _back(_m: Joining, s: State, p: int) -> tuple[str, ...]:
    s[p + HELD] = 0
    return ("set up lock",)


def _set_up_lock(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if m.bug != "no set-up lock":
        if s[SET_UP_LOCK]:
            return ()
        s[SET_UP_LOCK] = p
    if m.bug == "page made first":
        s[PAGE_WHOLE] = 0
    return ("share",)


def _share_only(m: Joining, s: State, p: int) -> tuple[str, ...]:
    return ("let in",) if m.take(s, p, SHARED) else ("give up",)


def _share(m: Joining, s: State, p: int) -> tuple[str, ...]:
    return ("alone",) if m.take(s, p, SHARED) else ("give up",)


def _give_up(_m: Joining, s: State, p: int) -> tuple[str, ...]:
    if s[SET_UP_LOCK] == p:
        s[SET_UP_LOCK] = 0
    s[p + HELD] = 0
    return ("next",)


def _alone(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if not m.take(s, p, EXCLUSIVE):
        return ("vouched for",)
    return ("down",) if m.bug == "page is trusted" and s[PAGE_WHOLE] else ("recover",)


def _vouched_for(m: Joining, s: State, p: int) -> tuple[str, ...]:
    """If nobody shows that the page is valid, the other one leaves, dies, or only looks."""
    if m.others(s, p, SHOWN) or m.bug == "page is not asked":
        return ("join",)
    return ("alone", "give up")


def _recover(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if any(s[each + HELD] for each in m._all() if each != p):
        s[WRONG] = 2
    s[PAGE_WHOLE] = s[CLEAN] = 0
    s[p + SHOWN] = 1  # for readers; no other process can have byte 0
    return ("end of the log",)


def _end_of_the_log(_m: Joining, s: State, _p: int) -> tuple[str, ...]:
    s[PAGE_END] = s[LOG_END]
    return ("page whole",)


def _page_whole(_m: Joining, s: State, _p: int) -> tuple[str, ...]:
    s[PAGE_WHOLE] = 1
    return ("down",)


def _down(m: Joining, s: State, p: int) -> tuple[str, ...]:
    """One call makes the exclusive lock a shared one; nobody comes between."""
    s[p + SHOWN] = s[p + STAYS] = 1
    if m.bug == "lets go between":
        s[p + HELD] = 0
        return ("share only",)
    m.take(s, p, SHARED)
    return ("let in",)


def _let_in(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if s[SET_UP_LOCK] == p:
        s[SET_UP_LOCK] = 0
    return ("append", "leave", "undo") if m.bug == "open is undone" else ("append", "leave")


def _join(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if not s[PAGE_WHOLE]:
        s[WRONG] = 3
    if s[SET_UP_LOCK] == p:
        s[SET_UP_LOCK] = 0
    s[p + SHOWN] = 1
    s[p + STAYS] = m.bug == "stays too soon"
    return ("fail", "stay") if s[FAILURES] else ("stay",)


def _fail(_m: Joining, s: State, _p: int) -> tuple[str, ...]:
    if not s[FAILURES]:
        return ("stay",)
    s[FAILURES] -= 1
    return ("let go",)


def _stay(_m: Joining, s: State, p: int) -> tuple[str, ...]:
    s[p + STAYS] = 1
    return ("append", "leave")


def _undo(_m: Joining, s: State, _p: int) -> tuple[str, ...]:
    s[CLEAN] = 1
    return ("let go",)


def _append(_m: Joining, s: State, _p: int) -> tuple[str, ...]:
    """The append lock is not modelled here: bytes and commit point are one step."""
    if s[CLEAN]:
        s[WRONG] = 4
    if s[PAGE_END] != s[LOG_END]:
        s[WRONG] = 1
    s[LOG_END] = s[PAGE_END] = (s[LOG_END] + 1) & 0xFF
    return ("append again", "leave")


def _append_again(m: Joining, s: State, p: int) -> tuple[str, ...]:
    _append(m, s, p)
    return ("leave",)


def _leave(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if m.bug == "last one asks first" and m.others(s, p, STAYS):
        return ("let go",)
    s[p + STAYS] = 0
    return ("do others stay",)


def _do_others_stay(m: Joining, s: State, p: int) -> tuple[str, ...]:
    return ("let go",) if m.others(s, p, STAYS) else ("stay on",)


def _stay_on(_m: Joining, s: State, p: int) -> tuple[str, ...]:
    s[p + STAYS] = 1
    return ("leave lock",)


def _leave_lock(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if m.bug != "no set-up lock":
        if s[SET_UP_LOCK]:
            return ()
        s[SET_UP_LOCK] = p
    return ("stay no longer",)


def _stay_no_longer(_m: Joining, s: State, p: int) -> tuple[str, ...]:
    s[p + STAYS] = 0
    return ("is anybody left",)


def _is_anybody_left(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if not m.others(s, p, STAYS):
        return ("last",)
    if s[SET_UP_LOCK] == p:
        s[SET_UP_LOCK] = 0
    return ("let go",)


def _last(m: Joining, s: State, p: int) -> tuple[str, ...]:
    if m.take(s, p, EXCLUSIVE) or m.bug == "last one is not asked":
        return ("clean stop",)
    return ("let go",) if m.bug == "last one does not wait" else ("is anybody left",)


def _clean_stop(_m: Joining, s: State, _p: int) -> tuple[str, ...]:
    if s[CLEAN]:
        s[WRONG] = 5
    s[CLEAN] = 1
    return ("let go",)


def _let_go(_m: Joining, s: State, p: int) -> tuple[str, ...]:
    s[p + HELD] = s[p + SHOWN] = s[p + STAYS] = 0
    if s[SET_UP_LOCK] == p:
        s[SET_UP_LOCK] = 0
    return ("next",)


def _rocketmq_begin(m: Joining, s: State, p: int) -> tuple[str, ...]:
    return ("done",) if s[p + ROUNDS] >= m.rounds else ("rocketmq lock",)


def _rocketmq_lock(m: Joining, s: State, p: int) -> tuple[str, ...]:
    s[p + ROUNDS] += 1
    return ("rocketmq append",) if m.take(s, p, EXCLUSIVE) else ("rocketmq begin",)


def _rocketmq_append(_m: Joining, s: State, _p: int) -> tuple[str, ...]:
    s[LOG_END] = (s[LOG_END] + 1) & 0xFF
    return ("rocketmq stop",)


def _rocketmq_stop(_m: Joining, s: State, p: int) -> tuple[str, ...]:
    s[p + HELD] = 0
    return ("rocketmq begin",)


_STEPS: Final[dict[str, Step]] = {
    name[1:].replace("_", " "): step
    for name, step in list(globals().items())
    if name.startswith("_") and not name.startswith("__") and callable(step)
}
"""The steps by name: that of the function, in words."""
_ENDS: Final = frozenset({"done"})
_NAMES: Final = (*_STEPS, *sorted(_ENDS))
_NUMBERS: Final = {name: number for number, name in enumerate(_NAMES)}
