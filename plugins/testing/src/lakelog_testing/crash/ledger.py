"""What was put, what was promised, and so what must and what may be found after a crash.

A message is in the ledger before it is put. What became of it, its place included, is known from
the rest of the run: a crash is only imagined, and the run went on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Final

import attrs

from lakelog.message import Message, StoredMessage
from lakelog.results import PutResult
from lakelog.status import PutStatus

_NEVER: Final = 1 << 62


@attrs.define(eq=False)
class Entry:
    """A message that somebody began to put.

    :ivar started: when, by the ledger's clock
    :ivar result: where it is, once that is known
    :ivar acked: when its put returned ``PUT_OK`` to one who had waited for it to be durable
    """

    message: Message
    started: int
    result: PutResult | None = None
    acked: int = _NEVER

    @property
    def offset(self) -> int:
        """Where its record starts."""
        assert self.result is not None
        return self.result.physical_offset

    @property
    def end_offset(self) -> int:
        """Where its record ends."""
        assert self.result is not None
        return self.result.end_offset

    def placed(self, found: StoredMessage) -> Entry:
        """A message whose put failed, and that was found all the same."""
        place = (found.topic, found.queue_id, found.queue_offset, found.physical_offset, found.size)
        result = PutResult(PutStatus.UNKNOWN_ERROR, *place, found.store_timestamp_ms, "")
        return attrs.evolve(self, result=result)

    def differs(self, found: StoredMessage) -> str:
        """In what the message that was found differs from this one; empty if in nothing."""
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
    """What was so at a crash point.

    :ivar clock: the ledger's clock
    :ivar flushed: end of what must be found: the log's ``flushed`` position, or what reads saw
    :ivar is_open: whether the store was open, and nobody had begun to close it
    """

    clock: int
    flushed: int
    is_open: bool = False


@attrs.frozen
class Expected:
    """What a crash at one moment must and may leave.

    :ivar must: by offset, entries that must be found
    :ivar may: by offset, entries that may be found; nothing else may
    :ivar unplaced: by body, entries whose puts failed: they may be found anywhere
    :ivar deleted: by topic, ends of its tombstones that may be there, and whether one must be
    :ivar aside: by offset, records that stood whole on the disk when a recovery began
    :ivar minimum: where the log must begin at least, and at most; what stands before its beginning
        was deleted
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
    """One call of the cleaner; ``minimum`` is where the log began behind it."""

    started: int
    minimum: int = 0
    done: int = _NEVER


class Ledger:
    """What one run put into a store.

    :param put_is_durable: whether ``PUT_OK`` promises durability; else only ``flushed`` does
    :param before: what the store may have held at the start
    :ivar flushed: gives the end of what must be found while the store is open
    :ivar is_open: whether the store is open, and nobody has begun to close it
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
        """The next time of the clock."""
        with self._lock:
            self._clock += 1
            return self._clock

    def moment(self) -> Moment:
        """What is so now; the witness of a :class:`~lakelog_testing.crash.SimFileSystem`."""
        self._most_flushed = max(self._most_flushed, self.flushed())
        return Moment(self._clock, self._most_flushed, self.is_open)

    def opened(self, kept: Mapping[int, Entry]) -> None:
        """A recovery has ended: what is not in ``kept`` is gone for good."""
        self._kept = kept
        self._opened_at = self.tick()

    def start(self, messages: Sequence[Message]) -> list[Entry]:
        """Note messages that are about to be put."""
        now = self.tick()
        entries = [Entry(message, now) for message in messages]
        self.entries += entries
        return entries

    def finish(self, entries: Sequence[Entry], results: Sequence[PutResult]) -> None:
        """Note what became of them."""
        now = self.tick()
        for entry, result in zip(entries, results, strict=True):
            entry.result = result
            promised = self.put_is_durable and entry.message.wait_store_ok
            if promised and result.status is PutStatus.PUT_OK:
                entry.acked = now

    def begin_deletion(self, topic: str, end_offset: int) -> _Deletion:
        """Note that the queues of a topic are about to be removed."""
        self._deletions.append(_Deletion(topic, end_offset, self.tick()))
        return self._deletions[-1]

    def end_deletion(self, deletion: _Deletion) -> None:
        """Note that they are removed."""
        deletion.done = self.tick()

    def begin_cleaning(self) -> _Cleaning:
        """Note that the oldest segments are about to be deleted."""
        self._cleanings.append(_Cleaning(self.tick()))
        return self._cleanings[-1]

    def end_cleaning(self, cleaning: _Cleaning) -> None:
        """Note that they are, durably."""
        cleaning.done = self.tick()

    def expected(self, moment: Moment, after: Moment) -> Expected:
        """What a crash must and may leave, of which the state was taken between two moments."""
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
                found[each.topic] = (
                    (frozenset() if done else ends) | {each.end_offset},
                    done or must,
                )
        return found


def _keys(message: Message) -> tuple[str, ...]:
    keys = message.keys
    return (keys,) if isinstance(keys, str) else tuple(keys or ())
