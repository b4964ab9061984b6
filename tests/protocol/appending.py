"""A model of the append section and of group commit, one store to a shared word at a step.

Processes put records of two cells into segments of five, then make them durable or wait for one
that does. Each may die before any step; one sync may fail. The names of the words, and the order of
the stores, are those of the shared page. Each step says which one follows, or nothing while it
waits.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tests.protocol.append_steps import (
    APPEND_LOCK,
    APPENDED,
    BLANK,
    COUNT,
    DEATHS,
    DONE,
    DROPPED,
    DURABLE,
    END,
    ENDS,
    ERRORS,
    FLUSHED,
    INTENT_END,
    LOCALS,
    NAMES,
    NUMBERS,
    OFFSETS,
    PC,
    QUEUE_END,
    RECORD,
    SECTION,
    SEEN,
    SEGMENT,
    STEPS,
    SYNC_LOCK,
    WORDS,
    Setting,
    State,
)


@attrs.frozen
class Appending(Setting):
    """The model: each process may die before any step, and a sync may fail."""

    def start(self) -> bytes:
        """Nothing was appended; everybody is about to put."""
        state = bytearray(WORDS + LOCALS * self.processes + self.cells)
        state[DEATHS], state[ERRORS] = self.deaths, self.errors
        for at in self.all():
            state[at + PC] = NUMBERS["begin"]
        return bytes(state)

    def successors(self, state: bytes) -> Iterator[tuple[str, bytes]]:
        """Each living process makes a step, or dies."""
        for at in self.all():
            name, who = NAMES[state[at + PC]], (at - WORDS) // LOCALS
            if name not in ENDS:
                for after in self._after(state, at, name):
                    yield f"{who} {name}", bytes(after)
                if state[DEATHS]:
                    yield f"{who} dies before {name}", bytes(self._death(state, at))

    def _after(self, state: bytes, at: int, name: str) -> Iterator[State]:
        if name == "wake one":
            yield from self._woken(state, at)
            return
        after = bytearray(state)
        following = STEPS[name](self, after, at)
        if following is None:
            return
        after[at + PC] = NUMBERS[following]
        yield after
        if name == "sync" and state[ERRORS]:
            yield self._error(state, at)

    def _death(self, state: bytes, at: int) -> State:
        """The kernel lets its locks go; everything else stays as it is."""
        after = bytearray(state)
        for lock in (APPEND_LOCK, SYNC_LOCK):
            if after[lock] == at:  # its word holds where its holder stands in the state
                after[lock] = 0
        after[DEATHS] -= 1
        after[at + PC] = NUMBERS["dead"]
        after[at + END] = after[at + SEEN] = after[at + COUNT] = 0
        return after

    def _error(self, state: bytes, at: int) -> State:
        """The disk takes nothing; the kernel drops it, and says so to this process alone."""
        after = bytearray(state)
        after[ERRORS] -= 1
        after[DROPPED] = max(after[DROPPED], after[at + COUNT])
        after[at + PC] = NUMBERS["fail"]
        return after

    def _woken(self, state: bytes, at: int) -> Iterator[State]:
        """The kernel wakes any one of those who sleep at the append lock."""
        sleepers = [each for each in self.all() if state[each + PC] == NUMBERS["lock sleep"]]
        for each in sleepers or [0]:
            after = bytearray(state)
            if each:
                after[each + PC] = NUMBERS["lock again"]
            after[at + PC] = NUMBERS["flushed"]
            yield after

    # --- rules ---

    def is_death(self, step: str) -> bool:
        """Those steps have a name that says so."""
        return " dies before " in step

    def is_end(self, state: bytes) -> bool:
        """Everybody is through, dead or refused."""
        return all(NAMES[state[at + PC]] in ENDS for at in self.all())

    def wrong(self, state: bytes) -> str | None:
        """The rule that is broken."""
        records, why = self._records(state)
        if why is None and state[FLUSHED] > state[DURABLE]:
            why = "flushed is ahead of the disk"
        return self._acknowledged(state, records) if why is None else why

    def _acknowledged(self, state: bytes, records: list[int]) -> str | None:
        for at in self.all():
            who = (at - WORDS) // LOCALS * self.puts
            mine = [each - who for each in records if who < each <= who + self.puts]
            if mine != sorted(set(mine)):
                return "a record is there twice, or out of its producer's order"
            if len(mine) < state[at + DONE]:
                return "a record is lost that was acknowledged"
        holder = state[APPEND_LOCK]
        is_quiet = not holder or NAMES[state[holder + PC]] not in SECTION
        if is_quiet and not state[INTENT_END]:
            if any(state[self.log + state[APPENDED] :]):
                return "behind the end of the log is not zero"
            if state[QUEUE_END] != len(records):
                return "the queue does not end behind its last record"
        return None

    def _records(self, state: bytes) -> tuple[list[int], str | None]:
        """What a reader finds in front of ``appended``."""
        records: list[int] = []
        at, log = 0, self.log
        while at < state[APPENDED]:
            first = state[log + at]
            if first == BLANK:
                at += SEGMENT - at % SEGMENT
            elif not first or state[log + at + 1] != OFFSETS + len(records):
                return records, f"no whole record with the next queue offset at {at}"
            else:
                records.append(first)
                at += RECORD
        return records, None if at == state[APPENDED] else "a record reaches behind appended"
