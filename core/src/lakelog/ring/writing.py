"""The producer's end of a ring.

Entries are allocated and freed in order. An entry is published when it is whole, and freed when its
answer was read. Used by one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

from lakelog.errors import EntryTooLarge, RingNonsense
from lakelog.ring.answers import Answer, read_answer
from lakelog.ring.layout import (
    AT_ANSWERED,
    AT_CAPACITY,
    AT_FREED,
    AT_MAGIC,
    AT_OWNER_SLEEPS,
    AT_POSITION,
    AT_PRODUCER_SLEEPS,
    AT_STAMP,
    AT_STATE,
    AT_TAIL,
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    INTENT,
    MAGIC,
    MOST_INTENTS,
    SEALED,
    WAIT,
    Kind,
    Shape,
    encode_topics,
    largest_entry,
)
from lakelog.ring.offer import Offer, shape_for
from lakelog.ring.order import full_fence, store_fence

Intent: TypeAlias = tuple[int, int]
"""Where an owner was about to put records, and its store time in ms."""

_NO_STATE: Final = bytes(ENTRY_BYTES - ENTRY.size)


@attrs.frozen(slots=True, eq=False)
class Ticket:
    """An entry that has no answer yet.

    :ivar sequence: the producer's number of it
    :ivar at: where it starts, in bytes from the start of the memory
    :ivar intents: of owners before, and from :meth:`RingWriter.unsettled` of this one
    """

    offer: Offer
    sequence: int
    at: int
    behind: int
    shape: Shape
    intents: tuple[Intent, ...] = ()


class RingWriter:
    """Puts offers into a ring, and reads what became of them.

    :ivar largest_bytes: the longest entry that there can be
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._words = memory.cast("Q")
        capacity = len(memory) - HEADER_BYTES
        if self._words[AT_MAGIC] != MAGIC or self._words[AT_CAPACITY] != capacity:
            raise RingNonsense("this is no ring, or one of another version of lakelog")
        self._capacity = capacity
        self.largest_bytes = largest_entry(capacity)
        self._tail = self._freed = self._seen = 0
        self._tickets: deque[Ticket] = deque()

    def __len__(self) -> int:
        """How many entries have not been freed."""
        return len(self._tickets)

    # --- put ---

    def put(self, offer: Offer, sequence: int, intents: Sequence[Intent] = ()) -> Ticket | None:
        """Publish ``offer``; ``None`` where there is no room for it now.

        :param intents: where owners before were about to put its records, the oldest first
        Raises :class:`~lakelog.errors.EntryTooLarge` where there never is room for it.
        """
        table = encode_topics(offer.topics)
        shape = shape_for(offer, table, len(intents))
        if shape.total > self.largest_bytes or len(intents) > MOST_INTENTS:
            raise EntryTooLarge(shape.total, self.largest_bytes)
        at = self._room_for(shape.total)
        if at is None:
            return None
        self._fill(at, offer, sequence, table, shape, intents)
        self._tail += shape.total
        ticket = Ticket(offer, sequence, at, self._tail, shape, tuple(intents))
        self._tickets.append(ticket)
        self._publish()
        return ticket

    def _room_for(self, total: int) -> int | None:
        """Where an entry can start; what is left before the ring's end is skipped."""
        left = self._capacity - self._tail % self._capacity
        skipped = left if left < total else 0
        if self._tail - self._freed + skipped + total > self._capacity:
            return None
        if skipped:
            at = HEADER_BYTES + self._tail % self._capacity
            ENTRY.pack_into(self._memory, at, left, Kind.SKIP, 0, 0, 0, 0, 0, 0, 0)
            self._tail += left
        return HEADER_BYTES + self._tail % self._capacity

    def _fill(
        self,
        at: int,
        offer: Offer,
        sequence: int,
        table: bytes,
        shape: Shape,
        intents: Sequence[Intent],
    ) -> None:
        memory, records = self._memory, offer.records
        ENTRY.pack_into(
            memory, at, shape.total, Kind.RETRY if intents else Kind.RECORDS, sequence,
            WAIT * offer.wait + SEALED * offer.sealed, offer.count, len(records),
            len(offer.topics), len(table), len(intents),
        )  # fmt: skip  # in the order of the format
        memory[at + ENTRY.size : at + ENTRY_BYTES] = _NO_STATE
        for start, piece in (
            (ENTRY_BYTES, records),
            (shape.sizes_at, offer.sizes),
            (shape.index_at, offer.topic_index),
            (shape.topics_at, table),
        ):
            memory[at + start : at + start + len(piece)] = piece
        for number, intent in enumerate(intents):
            INTENT.pack_into(memory, at + shape.intents_at + number * INTENT.size, *intent)

    def _publish(self) -> None:
        store_fence()
        self._words[AT_TAIL] = self._tail

    # --- answers ---

    def answered(self) -> bool:
        """Whether an answer came since :meth:`answers` was last called."""
        return self._words[AT_ANSWERED] != self._seen

    def answers(self) -> list[Answer]:
        """The answers to the oldest entries, which are freed; those behind an open one wait."""
        self._seen = self._words[AT_ANSWERED]
        store_fence()
        found: list[Answer] = []
        tickets, words = self._tickets, self._words
        while tickets and words[(tickets[0].at >> 3) + AT_STATE]:
            ticket = tickets.popleft()
            found.append(
                read_answer(self._memory, ticket.offer, ticket.sequence, ticket.at, ticket.shape)
            )
            self._freed = ticket.behind
        if found:
            words[AT_FREED] = self._freed
        return found

    def unsettled(self) -> list[Ticket]:
        """The entries without an answer, with the intents of an owner that is no more."""
        return [self._with_intent(each) for each in self._tickets]

    def _with_intent(self, ticket: Ticket) -> Ticket:
        word = ticket.at >> 3
        position, stamp_ms = self._words[word + AT_POSITION], self._words[word + AT_STAMP]
        if not stamp_ms:
            return ticket
        return attrs.evolve(ticket, intents=(*ticket.intents, (position, stamp_ms)))

    # --- sleep ---

    def owner_sleeps(self) -> bool:
        """Whether the owner has to be woken for what was put."""
        full_fence()
        return bool(self._words[AT_OWNER_SLEEPS])

    def sleep(self) -> bool:
        """Say that this end is about to sleep; ``False``, and not said, if an answer is there."""
        self._words[AT_PRODUCER_SLEEPS] = 1
        full_fence()
        if self.answered():
            self._words[AT_PRODUCER_SLEEPS] = 0
            return False
        return True

    def awake(self) -> None:
        """Say that this end does not sleep."""
        self._words[AT_PRODUCER_SLEEPS] = 0
