"""The cut of ``on_damage="truncate"``: the damage, and the whole records lost behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import attrs

from lakelog.log.queue_survey import QueueOffsetSurvey
from lakelog.log.reading.pieces import Blank, Damage, Piece
from lakelog.recovery.tails import BEHIND, Tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.recovery.proof import Proof


@attrs.frozen
class Cut:
    """:ivar damage: where the log is cut; :ivar offsets: of proved records behind it, by run."""

    damage: Damage
    offsets: Sequence[NDArray[Any]]

    def told(self, tail: Tail) -> Tail:
        """Return ``tail`` with the reason of the cut."""
        begin, end = tail.log_offset, tail.end_offset
        records = sum(int(((begin <= each) & (each < end)).sum()) for each in self.offsets)
        reason = (
            f"cut by on_damage='truncate' at damage {self.damage.offset}; "
            f"{records} whole, proved records in it"
        )
        return attrs.evolve(tail, reason=tail.reason.replace(BEHIND, reason, 1))


def cut_off(
    pending: Sequence[Blank | Damage],
    first: Piece,
    pieces: Iterable[Piece],
    found: QueueOffsetSurvey,
    proof: Proof,
) -> Cut:
    """Read on behind the damage to report the loss; ``found`` is not changed.

    :param first: the first run of proved records behind ``pending``
    """
    damage = next(each for each in pending if isinstance(each, Damage))
    seen = proof.seen = deepcopy(found)
    offsets = []
    for each in _with(first, pieces):
        if not isinstance(each, Blank | Damage):
            seen.count(each)
            offsets.append(each.physical_offsets)
    return Cut(damage, offsets)


def _with(first: Piece, rest: Iterable[Piece]) -> Iterable[Piece]:
    yield first
    yield from rest
