"""Records that a repair put in the place of damage, and the holes of queues that lead to them.

The places that a queue lost with damaged records are filled as RocketMQ fills the front of a queue
(see :mod:`.unitbytes`). Its store looks for such a filler at offset 0, finds nothing, and passes
over everything else in the log's first segment (``DefaultMessageStore.getMessage`` of 5.3.3, whose
``nextPhyFileStartOffset`` is then the second segment). So, once a whole record stands in the place
of the damage, the hole's units lead there: offsets go up along the queue, the real store finds that
record, and goes on with the next one. Reads of lakelog pass over it as over any hole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_units import RawUnits
from lakelog.format.units import Units
from lakelog_queues.dispatching.placement import is_explained

Longs = NDArray[np.int64]


@attrs.frozen(eq=False)
class Replacements:
    """Records of a repair, in the order of the log.

    :ivar offsets: physical offsets; :ivar sizes: in bytes
    """

    offsets: Longs
    sizes: Longs

    @classmethod
    def of(cls, units: Iterable[Units]) -> Replacements:
        """All those that queues of replacements lead to."""
        runs = list(units)
        offsets = np.concatenate([np.zeros(0, np.int64), *(each.offsets for each in runs)])
        sizes = np.concatenate([np.zeros(0, np.int64), *(each.sizes for each in runs)])
        order = np.argsort(offsets, kind="stable")
        return cls(offsets[order], sizes[order].astype(np.int64))

    def __len__(self) -> int:
        """How many there are."""
        return len(self.offsets)

    def between(self, low: int, high: int) -> tuple[int, int] | None:
        """Offset and size of the shortest one between two physical offsets."""
        first, stop = np.searchsorted(self.offsets, (low, high)).tolist()
        if first == stop:
            return None
        at = first + int(self.sizes[first:stop].argmin())
        return int(self.offsets[at]), int(self.sizes[at])

    def are_led_to(self, raw: RawUnits) -> NDArray[np.bool_]:
        """Which units lead to one of them, to all of it."""
        offsets = raw["offset"].astype(np.int64)
        near = np.minimum(np.searchsorted(self.offsets, offsets), len(self) - 1)
        led: NDArray[np.bool_] = self.offsets[near] == offsets
        led &= self.sizes[near] == raw["size"]
        return led

    def lead(self, raw: RawUnits, rows: Longs, units: Units, reached: int) -> None:
        """Let fillers lead to a replacement, if one stands between the records around them.

        :param raw: units in their order, changed in place
        :param rows: where in ``raw`` those of ``units`` are; fillers are between them
        :param reached: physical offset behind the record before ``raw``
        """
        before = np.concatenate([[reached], (units.offsets + units.sizes)[:-1]]).tolist()
        starts = np.concatenate([[0], rows[:-1] + 1])
        for at in np.flatnonzero(rows > starts).tolist():
            self._lead(raw[starts[at] : rows[at]], before[at], int(units.offsets[at]))

    def lead_front(self, raw: RawUnits, first_offset: int) -> None:
        """The same for the fillers before the first record of a queue, which is at this offset.

        For queues that began at 0, in a log that still does: elsewhere they have only grown old.
        """
        if is_explained(len(raw), first_offset):
            self._lead(raw, 0, first_offset)

    def _lead(self, fillers: RawUnits, low: int, high: int) -> None:
        found = self.between(low, high)
        if found is not None:
            fillers["offset"], fillers["size"] = found


NO_REPLACEMENTS = Replacements(np.zeros(0, np.int64), np.zeros(0, np.int64))


class ReplacementQueue(Protocol):
    """The part of a queue that is needed here."""

    first: int
    end: int
    reached: int

    def read(self, first: int, count: int) -> Units:
        """Its units."""


class ReplacedPlaces:
    """Knows the replacements that the queues of their topic lead to.

    :ivar minimum: the log's first byte; -1 as long as it is not known
    :ivar queues: those of that topic
    """

    def __init__(self) -> None:
        self.minimum = -1
        self.queues: Mapping[Queue, ReplacementQueue] = {}
        self._found: tuple[object, Replacements] = ((), NO_REPLACEMENTS)

    def watch(self, name: Queue, queue: ReplacementQueue) -> None:
        """Look into this queue, and no longer into another one of that name."""
        self.queues = {**self.queues, name: queue}

    def lead_front(self, raw: RawUnits, first_offset: int) -> None:
        """See :meth:`Replacements.lead_front`; nothing where the log does not begin at 0."""
        if self.minimum == 0:
            self.now().lead_front(raw, first_offset)

    def now(self) -> Replacements:
        """Those that are there now; to be called from any thread."""
        if not self.queues:
            return NO_REPLACEMENTS
        queues = list(self.queues.values())
        state = [(each.first, each.end, each.reached) for each in queues]
        seen, found = self._found
        if seen != state:
            found = Replacements.of(each.read(each.first, each.end - each.first) for each in queues)
            self._found = state, found
        return found
