"""The owner's end of a ring: takes entries out, and writes what became of them.

What a producer wrote is copied first and looked at then, so that it cannot change under the owner's
eyes; of the shared memory itself, only the header of an entry and the tail are read, once each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Final

from lakelog.errors import RingNonsense
from lakelog.layout import MAX_TOPIC_BYTES
from lakelog.ring.arena import Arena
from lakelog.ring.layout import (
    ALIGNMENT,
    AT_ANSWERED,
    AT_OWNER_SLEEPS,
    AT_PRODUCER_SLEEPS,
    AT_TAIL,
    AT_TAKEN,
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    INTENT,
    SEALED,
    WAIT,
    Kind,
    Shape,
    decode_topics,
    largest_entry,
    shape_of,
)
from lakelog.ring.order import full_fence, store_fence
from lakelog.ring.parts import Parts
from lakelog.ring.taken import Taken

if TYPE_CHECKING:
    from lakelog.ring.checks import Checks


_TABLE_BYTES: Final = 2 + MAX_TOPIC_BYTES
"""Of the table of one topic, at most; one that is longer is not worth remembering."""


class RingReader:
    """Entries of one producer; :meth:`take` is for one thread, answers may come from any.

    :ivar memory: all of the ring
    """

    def __init__(self, memory: memoryview, checks: Checks, arena: Arena | None = None) -> None:
        """Begin with an empty ring.

        :param arena: where entries are copied to; the caller resets it. Without one, each is
        copied to memory of its own
        """
        self.memory = memory
        self.words = memory.cast("Q")
        self.checks = checks
        self._arena = arena or Arena(0)
        self._capacity = len(memory) - HEADER_BYTES
        self._largest = largest_entry(self._capacity)
        self._at = self._tail = 0
        self._last = 0
        self._answered = 0
        self._lock = Lock()
        self._nonsense: RingNonsense | None = None

    # --- take ---

    def waiting(self) -> bool:
        """Whether there is something to take."""
        return self.words[AT_TAIL] != self._at

    def take(self, max_bytes: int) -> list[Taken]:
        """The next entries: one, and further ones while their records are ``max_bytes`` in all.

        Raises :class:`~lakelog.errors.RingNonsense` for what cannot be, once everything before it
        was taken, and from there on.
        """
        if self._nonsense is not None:
            raise self._nonsense
        found: list[Taken] = []
        try:
            self._take(found, max_bytes)
        except RingNonsense as error:
            self._nonsense = error
            if not found:
                raise
        return found

    def _take(self, found: list[Taken], max_bytes: int) -> None:
        tail = self.words[AT_TAIL]
        store_fence()
        if tail % ALIGNMENT or not self._tail <= tail <= self._at + self._capacity:
            raise RingNonsense(f"its tail is {tail}, with {self._at} taken")
        self._tail = tail
        while self._at < tail:
            taken = self._next(tail, max_bytes, is_first=not found)
            if taken is None:
                return
            if type(taken) is Taken:
                found.append(taken)
                max_bytes -= taken.record_bytes
            self.words[AT_TAKEN] = self._at

    def _next(self, tail: int, max_bytes: int, *, is_first: bool) -> Taken | bool | None:
        """The next entry; ``None`` if it is too large for now, ``True`` if it was one to skip."""
        at = HEADER_BYTES + self._at % self._capacity
        head = ENTRY.unpack_from(self.memory, at)
        total, kind, _, _, _, record_bytes, *_ = head
        left = min(tail - self._at, self._capacity - self._at % self._capacity)
        if total % ALIGNMENT or not 0 < total <= left:
            raise RingNonsense(f"an entry of {total} bytes where there are {left}")
        if kind == Kind.SKIP:
            self._at += total
            return True
        if record_bytes > max_bytes and not is_first:
            return None
        shape = self._checked_shape(head)
        taken = self._copied(at, head, shape)
        self._at += total
        return taken

    def _checked_shape(self, head: tuple[int, ...]) -> Shape:
        total, kind, sequence, flags, count, record_bytes, topics, table_bytes, intents = head
        if kind != (Kind.RETRY if intents else Kind.RECORDS) or flags & ~(WAIT | SEALED):
            raise RingNonsense(f"an entry of kind {kind} with flags {flags:x}, {intents} intents")
        shape = shape_of(count, record_bytes, topics, table_bytes, intents)
        if shape.total != total or total > self._largest or not 0 < topics <= count:
            raise RingNonsense(f"an entry of {total} bytes for {count} records, {topics} topics")
        if sequence <= self._last:
            raise RingNonsense(f"entry {sequence} behind entry {self._last}")
        self._last = sequence
        return shape

    def _copied(self, at: int, head: tuple[int, ...], shape: Shape) -> Taken:
        _, _, sequence, flags, count, record_bytes, topics, table_bytes, _ = head
        memory = self.memory
        records = self._arena.claim(record_bytes)
        records[:] = memory[at + ENTRY_BYTES : at + ENTRY_BYTES + record_bytes]
        rest = memoryview(bytes(memory[at + shape.sizes_at : at + shape.places_at]))
        start = shape.sizes_at
        parts = Parts(
            records,
            rest[: 4 * count].cast("i"),
            _topics(rest[shape.topics_at - start :][:table_bytes], topics),
            rest[shape.index_at - start :][: 4 * count].cast("i") if topics > 1 else None,
            bool(flags & WAIT),
            bool(flags & SEALED),
        )
        found = INTENT.iter_unpack(rest[shape.intents_at - start :])
        return Taken(self, at, shape, sequence, parts, self.checks, list(found))

    # --- answers ---

    def answered(self) -> None:
        """One entry more has its answer, which the producer may look at."""
        with self._lock:
            self._answered += 1
            self.words[AT_ANSWERED] = self._answered

    # --- sleep ---

    def producer_sleeps(self) -> bool:
        """Whether the producer has to be woken for an answer."""
        full_fence()
        return bool(self.words[AT_PRODUCER_SLEEPS])

    def sleep(self) -> bool:
        """Say that the owner is about to sleep; ``False``, and not said, if there is something."""
        self.words[AT_OWNER_SLEEPS] = 1
        full_fence()
        if self.waiting():
            self.words[AT_OWNER_SLEEPS] = 0
            return False
        return True

    def awake(self) -> None:
        """Say that the owner does not sleep."""
        self.words[AT_OWNER_SLEEPS] = 0


def _topics(table: memoryview, count: int) -> Sequence[str]:
    try:
        if count == 1 and len(table) <= _TABLE_BYTES:
            return _one_topic(bytes(table))
        return decode_topics(bytes(table), count)
    except ValueError as error:
        raise RingNonsense(f"the table of topics: {error}") from None


@lru_cache(maxsize=4096)
def _one_topic(table: bytes) -> Sequence[str]:
    return decode_topics(table, 1)
