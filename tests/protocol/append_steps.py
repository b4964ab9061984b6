"""The program of a process that appends and syncs: one store to a shared word at a step.

All take the append lock: ``test_append_alone`` has the process that is alone, and takes none.

Each step says which one follows, or nothing while it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

State: TypeAlias = bytearray
Step: TypeAlias = "Callable[[Setting, State, int], str | None]"

SEGMENT: Final = 5
RECORD: Final = 2
BLANK: Final = 255
OFFSETS: Final = 200
"""A record's second cell: its queue offset, and this."""

# The shared words.
APPENDED, INTENT_START, INTENT_END, QUEUE_END = 0, 1, 2, 3
FLUSHED, SYNCING, FAILED, FLUSH_SEQUENCE = 4, 5, 6, 7
APPEND_LOCK, SYNC_LOCK, LOCK_SEQUENCE, LOCK_WAITED = 8, 9, 10, 11
# What the disk and the kernel know, and what may still go wrong.
DURABLE, DROPPED, DEATHS, ERRORS = 12, 13, 14, 15
WORDS: Final = 16
# A process: where it is, and its variables.
PC, DONE, END, SEEN, COUNT = 0, 1, 2, 3, 4
LOCALS: Final = 5

BUGS: Final = {
    "intent behind the bytes": "the intent is noted once the record was written",
    "appended before the bytes": "the commit point comes before the record",
    "intent ends before the queue": "the intent is taken back before the queue end is stored",
    "committed bytes are zeroed": "a repair zeroes what was committed already",
    "half a repair": "a repair zeroes the first cell of a record only",
    "no repair": "an intent that a dead process left is overwritten",
    "blank without an intent": "a roll writes its blank record without an intent",
    "end read behind the sync": "what a sync made durable is read once it returned",
    "sync not marked": "a sync is marked once it returned",
    "mark not looked at": "the mark that a dead leader left is overwritten",
    "no second look": "who waits for a sync does not try to lead again before it sleeps",
    "flag not raised again": "who was woken does not say that others may wait still",
}
"""What can be planted, and what it means."""


@attrs.frozen
class Setting:
    """How large a model is.

    :ivar processes: how many there are
    :ivar puts: how many each makes
    :ivar deaths: how many may die, at most
    :ivar errors: how many syncs may fail, at most
    :ivar bug: one of :data:`BUGS`, or nothing
    """

    processes: int
    puts: int
    deaths: int
    errors: int = 0
    bug: str = ""

    @property
    def cells(self) -> int:
        """Length of the log: two records take a segment, and deaths leave nothing in it."""
        return SEGMENT * (self.processes * self.puts // 2 + 2)

    def all(self) -> range:
        """Where each process stands in a state."""
        return range(WORDS, WORDS + LOCALS * self.processes, LOCALS)

    @property
    def log(self) -> int:
        """Where the log stands in a state."""
        return WORDS + LOCALS * self.processes


def _begin(m: Setting, s: State, p: int) -> str | None:
    return "done" if s[p + DONE] == m.puts else "lock"


def sets(word: int, following: str, value: int = 0) -> Step:
    def step(_m: Setting, s: State, _p: int) -> str:
        s[word] = value
        return following

    return step


def copies(source: int, word: int, following: str) -> Step:
    def step(_m: Setting, s: State, _p: int) -> str:
        s[word] = s[source]
        return following

    return step


def counts(word: int, following: str) -> Step:
    def step(_m: Setting, s: State, _p: int) -> str:
        s[word] = (s[word] + 1) & 0xFF
        return following

    return step


def take(s: State, p: int, lock: int) -> bool:
    if s[lock]:
        return False
    s[lock] = p
    return True


def _lock(_m: Setting, s: State, p: int) -> str | None:
    return "failed" if take(s, p, APPEND_LOCK) else "see lock"


def _see_lock(_m: Setting, s: State, p: int) -> str | None:
    s[p + SEEN] = s[LOCK_SEQUENCE]
    return "flag"


_flag = sets(LOCK_WAITED, "lock with flag", 1)


def _lock_with_flag(_m: Setting, s: State, p: int) -> str | None:
    return "failed" if take(s, p, APPEND_LOCK) else "lock wait"


def _lock_wait(_m: Setting, s: State, p: int) -> str | None:
    return "lock sleep" if s[LOCK_SEQUENCE] == s[p + SEEN] else "lock again"


def _lock_sleep(m: Setting, s: State, _p: int) -> str | None:
    """Nobody wakes a sleeper by itself; after a death the time limit does."""
    return "lock again" if s[DEATHS] < m.deaths else None


def _lock_again(m: Setting, s: State, p: int) -> str | None:
    if not take(s, p, APPEND_LOCK):
        return "see lock"
    return "failed" if m.bug == "flag not raised again" else "flag again"


_flag_again = sets(LOCK_WAITED, "failed", 1)


def _failed(_m: Setting, s: State, p: int) -> str | None:
    s[p + SEEN] = 0
    if s[FAILED]:
        s[p + END] = 0
        return "unlock"
    return "intent"


def _intent(m: Setting, s: State, p: int) -> str | None:
    if not s[INTENT_END] or m.bug == "no repair":
        return "fits"
    s[p + COUNT] = 0
    if s[APPENDED] < s[INTENT_END]:
        return "zero"
    return "zero" if m.bug == "committed bytes are zeroed" else "raise queue"


def _zero(m: Setting, s: State, p: int) -> str | None:
    at = s[INTENT_START] + s[p + COUNT]
    s[m.log + at] = 0
    s[p + COUNT] += 1
    return "zero" if at + 1 < s[INTENT_END] and m.bug != "half a repair" else "intent ends"


def _raise_queue(m: Setting, s: State, _p: int) -> str | None:
    if s[INTENT_END] % SEGMENT:  # no record ends at a border: that was a roll
        offset = s[m.log + s[INTENT_START] + 1] - OFFSETS
        s[QUEUE_END] = max(s[QUEUE_END], offset + 1)
    return "intent ends"


def _intent_ends(_m: Setting, s: State, p: int) -> str | None:
    s[INTENT_END] = s[p + COUNT] = 0
    return "fits"


def _fits(m: Setting, s: State, p: int) -> str | None:
    at = s[APPENDED]
    if at % SEGMENT + RECORD < SEGMENT:
        s[p + END] = at + RECORD
        return "write 1" if m.bug == "intent behind the bytes" else "intent start"
    return "blank" if m.bug == "blank without an intent" else "roll start"


_roll_start = copies(APPENDED, INTENT_START, "roll end")


def border(s: State) -> int:
    return s[APPENDED] + SEGMENT - s[APPENDED] % SEGMENT


def _roll_end(_m: Setting, s: State, _p: int) -> str | None:
    s[INTENT_END] = border(s)
    return "blank"


def _blank(m: Setting, s: State, _p: int) -> str | None:
    s[m.log + s[APPENDED]] = BLANK
    return "rolled"


def _rolled(_m: Setting, s: State, _p: int) -> str | None:
    s[APPENDED] = border(s)
    return "intent ends"


_intent_start = copies(APPENDED, INTENT_START, "intent end")


def _intent_end(m: Setting, s: State, p: int) -> str | None:
    s[INTENT_END] = s[p + END]
    if m.bug == "intent behind the bytes":
        return "appended"
    return "appended" if m.bug == "appended before the bytes" else "write 1"


def _write_1(m: Setting, s: State, p: int) -> str | None:
    who = (p - WORDS) // LOCALS
    s[m.log + s[p + END] - RECORD] = who * m.puts + s[p + DONE] + 1
    return "write 2"


def _write_2(m: Setting, s: State, p: int) -> str | None:
    s[m.log + s[p + END] - 1] = OFFSETS + s[QUEUE_END]
    if m.bug == "intent behind the bytes":
        return "intent start"
    return "queue end" if m.bug == "appended before the bytes" else "appended"


def _appended(m: Setting, s: State, p: int) -> str | None:
    s[APPENDED] = s[p + END]
    if m.bug == "appended before the bytes":
        return "write 1"
    return "clear" if m.bug == "intent ends before the queue" else "queue end"


def _queue_end(m: Setting, s: State, _p: int) -> str | None:
    s[QUEUE_END] += 1
    return "unlock" if m.bug == "intent ends before the queue" else "clear"


def _clear(m: Setting, s: State, _p: int) -> str | None:
    s[INTENT_END] = 0
    return "queue end" if m.bug == "intent ends before the queue" else "unlock"


_unlock = sets(APPEND_LOCK, "waited")


def _waited(_m: Setting, s: State, _p: int) -> str | None:
    return "no flag" if s[LOCK_WAITED] else "flushed"


_no_flag = sets(LOCK_WAITED, "count lock")


_count_lock = counts(LOCK_SEQUENCE, "wake one")


def _wake_one(_m: Setting, _s: State, _p: int) -> str | None:
    raise AssertionError("the model chooses who is woken")


def _flushed(_m: Setting, s: State, p: int) -> str | None:
    if not s[p + END]:
        return "refused"
    if s[FLUSHED] >= s[p + END]:
        s[p + DONE] += 1
        s[p + END] = 0
        return "begin"
    return "refused" if s[FAILED] else "lead"


def _lead(_m: Setting, s: State, p: int) -> str | None:
    return "needed" if take(s, p, SYNC_LOCK) else "see flush"


def _see_flush(m: Setting, s: State, p: int) -> str | None:
    s[p + SEEN] = s[FLUSH_SEQUENCE]
    return "flush sleep" if m.bug == "no second look" else "flushed now"


def _flushed_now(_m: Setting, s: State, p: int) -> str | None:
    return "lead again" if s[FLUSHED] < s[p + END] and not s[FAILED] else "through"


def _lead_again(_m: Setting, s: State, p: int) -> str | None:
    return "needed" if take(s, p, SYNC_LOCK) else "flush sleep"


def _flush_sleep(m: Setting, s: State, p: int) -> str | None:
    """It sleeps while the sequence is as it was seen; after a death its time limit ends that."""
    if s[FLUSH_SEQUENCE] == s[p + SEEN] and s[DEATHS] == m.deaths:
        return None
    return "through"


def _through(_m: Setting, s: State, p: int) -> str | None:
    s[p + SEEN] = 0
    return "flushed"


def _needed(m: Setting, s: State, p: int) -> str | None:
    s[p + SEEN] = 0
    if s[FLUSHED] >= s[p + END] or s[FAILED]:
        return "sync unlock"
    return "prove" if s[SYNCING] > s[FLUSHED] and m.bug != "mark not looked at" else "target"


_prove = sets(DROPPED, "target")
"""It reads and checks what the dead leader was to sync, and writes it once more."""


def _target(m: Setting, s: State, p: int) -> str | None:
    s[p + COUNT] = s[APPENDED]
    return "sync" if m.bug == "sync not marked" else "mark"


def _mark(m: Setting, s: State, p: int) -> str | None:
    s[SYNCING] = s[p + COUNT]
    return "flush end" if m.bug == "sync not marked" else "sync"


def _sync(m: Setting, s: State, p: int) -> str | None:
    """What the kernel has dropped it does not write again, and it says nothing of it."""
    if not s[DROPPED]:
        s[DURABLE] = max(s[DURABLE], s[p + COUNT])
    return "mark" if m.bug == "sync not marked" else "flush end"


def _flush_end(m: Setting, s: State, p: int) -> str | None:
    s[FLUSHED] = s[APPENDED] if m.bug == "end read behind the sync" else s[p + COUNT]
    s[p + COUNT] = 0
    return "sync unlock"


def _fail(_m: Setting, s: State, p: int) -> str | None:
    s[FAILED], s[p + COUNT] = 1, 0
    return "sync unlock"


_sync_unlock = sets(SYNC_LOCK, "count flush")


_count_flush = counts(FLUSH_SEQUENCE, "flushed")
"""It wakes all who sleep, in the same call."""


STEPS: Final[dict[str, Step]] = {
    name[1:].replace("_", " "): step
    for name, step in list(globals().items())
    if name.startswith("_") and not name.startswith("__")
}
"""The steps by name: that of the function, in words."""
ENDS: Final = frozenset({"done", "dead", "refused"})
SECTION: Final = frozenset([*STEPS][[*STEPS].index("flag again") : [*STEPS].index("unlock") + 1])
"""The steps of who may change what the append lock guards."""
NAMES: Final = (*STEPS, *sorted(ENDS))
NUMBERS: Final = {name: number for number, name in enumerate(NAMES)}
