"""What became of an entry, as its producer reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from lakelog.errors import LakelogError, PutRefused, StoreFailed
from lakelog.results import BatchResult, PutResult
from lakelog.ring.layout import (
    AT_ACCEPTED,
    AT_ERROR_BYTES,
    AT_STATE,
    AT_STATUS,
    ENTRY_BYTES,
    ERROR_BYTES,
    PLACE,
    STATUSES,
    Shape,
    State,
)
from lakelog.status import PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakelog.ring.offer import Offer


@attrs.frozen(slots=True, eq=False)
class Answer:
    """What became of an entry.

    :ivar places: queue offset, physical offset, size and store time of each record, packed
    :ivar error: why an entry was refused, or failed
    """

    offer: Offer
    sequence: int
    state: State
    status: PutStatus
    places: bytes
    error: str

    def results(self) -> Sequence[PutResult]:
        """The results, as the same put without a ring would have them.

        Raises :class:`~lakelog.errors.PutRefused` where nothing of it is in the log but what its
        ``accepted`` has, and :class:`~lakelog.errors.StoreFailed` where that cannot be known.
        """
        return results(self.offer, self)


def read_answer(memory: memoryview, offer: Offer, sequence: int, at: int, shape: Shape) -> Answer:
    """The answer that stands in the entry at ``at``."""
    words = memory[at : at + ENTRY_BYTES].cast("Q")
    state = State(words[AT_STATE])
    count = offer.count if state is State.ANSWERED else words[AT_ACCEPTED]
    start = at + shape.places_at
    places = bytes(memory[start : start + PLACE.size * count])
    start = at + shape.error_at
    text = bytes(memory[start : start + min(words[AT_ERROR_BYTES], ERROR_BYTES)])
    status = STATUSES[words[AT_STATUS]]
    return Answer(offer, sequence, state, status, places, text.decode(errors="replace"))


def results(offer: Offer, answer: Answer) -> Sequence[PutResult]:
    """See :meth:`Answer.results`."""
    if answer.state is State.ANSWERED:
        return _in_columns(offer, answer) if offer.in_columns else _one_by_one(offer, answer)
    raise _error(offer, answer)


def _error(offer: Offer, answer: Answer) -> LakelogError:
    if answer.state is State.FAILED:
        return StoreFailed(answer.error)
    error = PutRefused(answer.status, answer.error)
    error.accepted = _one_by_one(offer, answer)
    return error


def _one_by_one(offer: Offer, answer: Answer) -> list[PutResult]:
    status, rows = answer.status, PLACE.iter_unpack(answer.places)
    each = zip(offer.queues, rows, offer.store_hosts, strict=False)
    return [
        PutResult(status, queue[0], queue[1], *place, host)  # type: ignore[call-arg]  # PLACE has four
        for queue, place, host in each
    ]


def _in_columns(offer: Offer, answer: Answer) -> Sequence[PutResult]:
    """As columns; a batch of which an owner before wrote a part has two store times."""
    import numpy as np

    rows: Any = np.frombuffer(answer.places, np.int64).reshape(-1, 4)
    queue_offsets, places, sizes, stamps = rows.T
    if (stamps != stamps[0]).any():
        return _one_by_one(offer, answer)
    return BatchResult(
        answer.status, offer.queues, queue_offsets, places, sizes, int(stamps[0]), offer.store_hosts
    )
