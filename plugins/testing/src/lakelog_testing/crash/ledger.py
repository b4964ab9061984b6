"""Records puts and guarantees, and derives the messages that must or may exist after a crash.

A message is recorded before it is put. Its result, including its place, is known from the rest of
the run: crashes are only simulated, and the run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Final

import attrs

from lakelog.message import Message, StoredMessage
from lakelog.results import PutResult, PutStatus

_NEVER: Final = 1 << 62


@attrs.define(eq=False)
class Entry:
    """A message whose put was started.

    :ivar started: start of the put, by the ledger's clock
    :ivar result: its place, once known
    :ivar acked: time at which its put, having waited for durability, returned ``PUT_OK``
    """

    message: Message
    started: int
    result: PutResult | None = None
    acked: int = _NEVER

    @property
    def offset(self) -> int:
        """Start of its record."""
        assert self.result is not None
        return self.result.physical_offset

    @property
    def end_offset(self) -> int:
        """End of its record."""
        assert self.result is not None
        return self.result.end_offset

    def placed(self, found: StoredMessage) -> Entry:
        """The entry of a message whose put failed, but that was found."""
        place = (found.topic, found.queue_id, found.queue_offset, found.physical_offset, found.size)
        result = PutResult(PutStatus.UNKNOWN_ERROR, *place, found.store_timestamp_ms, "")
        return attrs.evolve(self, result=result)

    def differs(self, found: StoredMessage) -> str:
        """How the found message differs from this one; empty if it does not."""
        message = self.message
        assert self.result is not None
        result = self.result
        pairs = {
            "topic": (found.topic, message.topic),
            "queue": (found.queue_id, message.queue_id),
            "queue offset": (found.queue_offset, result.queue_offset),
            "size": (found.size, result.size),
            "tags": (found.tags, message.tags),
            "keys": (tuple(found.keys), _keys(message)),
            "body": (bytes(found.body), bytes(message.body)),
        }
        return ", ".join(name for name, (one, other) in pairs.items() if one != other)


@attrs.frozen
class Moment:
    """The state at a crash point.

    :ivar clock: the ledger's clock
    :ivar flushed: end of the bytes that must be found: the log's ``flushed`` position, or the end
        of reads
    :ivar is_open: whether the store was open, and its close had not started
    """

    clock: int
    flushed: int
    is_open: bool = False


@attrs.frozen
class Expected:
    """The contents that a store must and may have after a crash at one moment.

    :ivar must: entries that must be found, by offset
    :ivar may: entries that may be found, by offset; no others may
    :ivar unplaced: entries whose puts failed, by body: they may be found anywhere
    :ivar deleted: possible ends of tombstones by topic, and whether one must exist
    :ivar aside: records that were whole on disk when a recovery began, by offset
    :ivar minimum: lowest and highest possible start of the log; earlier records were deleted
    """

    must: Mapping[int, Entry]
    may: Mapping[int, Entry]
    unplaced: Mapping[bytes, Entry]
    deleted: Mapping[str, tuple[frozenset[int], bool]]
    aside: Mapping[int, bytes] = attrs.field(factory=dict)
    minimum: tuple[int, int] = (0, 0)


@attrs.define
class _Deletion:
    topic: str
    end_offset: int
    started: int
    done: int = _NEVER


@attrs.define
class _Cleaning:
    """One run of the cleaner; ``minimum`` is the start of the log after it."""

    started: int
    minimum: int = 0
    done: int = _NEVER


class Ledger:
    """The puts of one run.

    :param put_is_durable: whether ``PUT_OK`` guarantees durability; otherwise only ``flushed`` does
    :param before: the possible contents of the store at the start
    :ivar flushed: returns the end of the bytes that must be found while the store is open
    :ivar is_open: whether the store is open, and its close has not started
    """

    def __init__(self, *, put_is_durable: bool, before: Expected | None = None) -> None:
        self.put_is_durable = put_is_durable
        self.entries: list[Entry] = []
        self.flushed: Callable[[], int] = int
        self.is_open = False
        self._before = before or Expected({}, {}, {}, {})
        self._kept: Mapping[int, Entry] = {}
        self._opened_at = _NEVER if before else 0
        self._deletions: list[_Deletion] = []
        self._cleanings: list[_Cleaning] = []
        self._clock = 0
        self._most_flushed = 0
        self._lock = Lock()

    def tick(self) -> int:
        """Advance the clock."""
        with self._lock:
            self._clock += 1
            return self._clock

    def moment(self) -> Moment:
        """The present state; the witness of a :class:`~lakelog_testing.crash.SimFileSystem`."""
        self._most_flushed = max(self._most_flushed, self.flushed())
        return Moment(self._clock, self._most_flushed, self.is_open)

    def opened(self, kept: Mapping[int, Entry]) -> None:
        """Record the end of a recovery: entries not in ``kept`` are lost permanently."""
        self._kept = kept
        self._opened_at = self.tick()

    def start(self, messages: Sequence[Message]) -> list[Entry]:
        """Record messages that are about to be put."""
        now = self.tick()
        entries = [Entry(message, now) for message in messages]
        self.entries += entries
        return entries

    def finish(self, entries: Sequence[Entry], results: Sequence[PutResult]) -> None:
        """Record the results of puts."""
        now = self.tick()
        for entry, result in zip(entries, results, strict=True):
            entry.result = result
            promised = self.put_is_durable and entry.message.wait_store_ok
            if promised and result.status is PutStatus.PUT_OK:
                entry.acked = now

    def begin_deletion(self, topic: str, end_offset: int) -> _Deletion:
        """Record the start of a removal of a topic's queues."""
        self._deletions.append(_Deletion(topic, end_offset, self.tick()))
        return self._deletions[-1]

    def begin_cleaning(self) -> _Cleaning:
        """Record the start of a deletion of the oldest segments."""
        self._cleanings.append(_Cleaning(self.tick()))
        return self._cleanings[-1]

    def end(self, removal: _Deletion | _Cleaning) -> None:
        """Record its durable end."""
        removal.done = self.tick()

    def expected(self, moment: Moment, after: Moment) -> Expected:
        """The expectation for a crash whose state was taken between two moments."""
        before, opened = self._before, moment.clock >= self._opened_at
        must, may = dict(before.must), dict(self._kept if opened else before.may)
        kept = self._kept.items() if opened else ()
        must.update((offset, each) for offset, each in kept if each.end_offset <= moment.flushed)
        for entry in self.entries:
            if entry.started <= after.clock and entry.result is not None:
                may[entry.offset] = entry
                if entry.acked <= moment.clock or entry.end_offset <= moment.flushed:
                    must[entry.offset] = entry
        failed = [each for each in self.entries if each.result is None]
        unplaced = {
            bytes(each.message.body): each for each in failed if each.started <= after.clock
        }
        if not opened:
            unplaced.update(before.unplaced)
        deleted = self._deleted(moment.clock, after.clock)
        minimum = self._minimum(moment.clock, after.clock)
        return Expected(must, may, unplaced, deleted, before.aside, minimum)

    def _minimum(self, clock: int, after: int) -> tuple[int, int]:
        least, most = self._before.minimum
        for each in self._cleanings:
            if each.done <= clock:
                least = max(least, each.minimum)
            if each.started <= after:
                most = max(most, each.minimum)
        return least, most

    def _deleted(self, clock: int, after: int) -> dict[str, tuple[frozenset[int], bool]]:
        found = dict(self._before.deleted)
        for each in self._deletions:
            if each.started <= after:
                ends, must = found.get(each.topic, (frozenset[int](), False))
                done = each.done <= clock
                ends = frozenset() if done else ends
                found[each.topic] = (ends | {each.end_offset}, done or must)
        return found


def _keys(message: Message) -> tuple[str, ...]:
    keys = message.keys
    return (keys,) if isinstance(keys, str) else tuple(keys or ())
