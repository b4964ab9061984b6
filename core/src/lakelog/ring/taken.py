"""An entry that the owner took: what its producer offered, and where its answer goes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol, cast

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.one import EncodedOne
from lakelog.errors import PutRefused
from lakelog.ring.layout import (
    AT_ACCEPTED,
    AT_ERROR_BYTES,
    AT_POSITION,
    AT_STAMP,
    AT_STATE,
    AT_STATUS,
    ERROR_BYTES,
    NUMBER_OF,
    PLACE,
    Shape,
    State,
)
from lakelog.ring.order import store_fence
from lakelog.status import PutStatus

if TYPE_CHECKING:
    from lakelog.results import PutResult
    from lakelog.ring.checks import Checks
    from lakelog.ring.parts import Parts


_PUT_OK: Final = PutStatus.PUT_OK
"""Its number is 0; members of an enumeration are slow to look up."""


class Ring(Protocol):
    """The ring that an entry stands in."""

    memory: memoryview
    words: memoryview[int]

    def answered(self) -> None:
        """One entry more has its answer."""


class Taken:
    """Checked records of one entry.

    :ivar sequence: the producer's number of the entry
    :ivar batch: the records to append; ``None`` once all of them were found in the log
    :ivar intents: where owners before were about to put them, the oldest first; see
        :mod:`lakelog.ring.retry`
    :ivar found: of records that are in the log already, the places, packed
    :ivar record_bytes: length of all records
    """

    __slots__ = (
        "_at", "_ring", "_shape", "_word", "batch", "checks", "count", "found", "intents", "parts",
        "record_bytes", "sequence", "wait",
    )  # fmt: skip  # a list of names

    def __init__(
        self,
        ring: Ring,
        at: int,
        shape: Shape,
        sequence: int,
        parts: Parts,
        checks: Checks,
        intents: list[tuple[int, int]],
    ) -> None:
        self._ring, self._at, self._shape = ring, at, shape
        self._word = at >> 3
        self.sequence, self.parts, self.checks, self.intents = sequence, parts, checks, intents
        self.batch: EncodedBatch | None = checks.batch_of(parts)
        self.count, self.record_bytes, self.wait = len(parts.sizes), len(parts.records), parts.wait
        self.found = b""

    def intend(self, position: int, stamp_ms: int) -> None:
        """Note where the records are about to go; before any of them is written.

        This outlives the owner: its successor looks there for what it may have written.
        """
        words, word = self._ring.words, self._word
        words[word + AT_POSITION] = position
        store_fence()
        words[word + AT_STAMP] = stamp_ms
        store_fence()

    @property
    def lights(self) -> bool:
        """Whether records may feed light queues."""
        return self.checks.max_light_queues is not None

    def settle(self, found: bytes) -> None:
        """The first records are in the log, at the places that ``found`` has."""
        self.found = found
        self.parts = self.parts.behind(len(found) // PLACE.size)
        self.batch = self.checks.batch_of(self.parts) if len(self.parts.sizes) else None

    def answer(self, status: PutStatus) -> None:
        """All records are in the log; ``batch`` has been placed."""
        places = b"" if self.batch is None else places_of(self.batch)
        self._tell(State.ANSWERED, status, places, "")

    def refuse(self, error: BaseException) -> None:
        """None of the records of ``batch`` is in the log, or that cannot be known."""
        if isinstance(error, PutRefused):
            text = str(error).removeprefix(f"{error.status.name}: ")
            self._tell(State.REFUSED, error.status, b"", text)
        else:
            self._tell(State.FAILED, PutStatus.UNKNOWN_ERROR, b"", str(error) or repr(error))

    def _tell(self, state: State, status: PutStatus, places: bytes | memoryview, text: str) -> None:
        memory, words, word, shape = self._ring.memory, self._ring.words, self._word, self._shape
        at = self._at + shape.places_at
        for piece in (self.found, places):
            memory[at : at + len(piece)] = piece
            at += len(piece)
        if text:
            error = text.encode(errors="replace")[:ERROR_BYTES]
            at = self._at + shape.error_at
            memory[at : at + len(error)] = error
            words[word + AT_ERROR_BYTES] = len(error)
        words[word + AT_ACCEPTED] = len(self.found) // PLACE.size
        words[word + AT_STATUS] = 0 if status is _PUT_OK else NUMBER_OF[status]
        store_fence()
        words[word + AT_STATE] = state
        store_fence()
        self._ring.answered()


def places_of(batch: EncodedBatch) -> bytes | memoryview:
    """Of each record of a placed batch: queue offset, physical offset, size, store time."""
    if isinstance(batch, EncodedOne):
        return PLACE.pack(
            batch.queue_offset, batch.physical_offset, len(batch.buffer), batch.store_timestamp_ms
        )
    own = getattr(batch, "places", None)
    if own is not None:
        return cast("memoryview", own())
    return packed(batch.results(PutStatus.PUT_OK))


def packed(results: Iterable[PutResult]) -> bytes:
    """The places of results."""
    return b"".join(
        PLACE.pack(each.queue_offset, each.physical_offset, each.size, each.store_timestamp_ms)
        for each in results
    )
