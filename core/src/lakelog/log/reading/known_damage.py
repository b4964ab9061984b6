"""Checks offsets against known damage, for reads that go straight to a record.

A scan skips known damage on its way. A queue unit, an index entry or a saved offset may point into
it, where old, whole records can stand that do not belong to the log. As in a scan, an entry counts
only while the damaged bytes are unchanged.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import attrs

from lakelog.log.reading.pieces import Damage
from lakelog.log.reading.source import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class KnownDamage:
    """The known damage of one source; falsy if there is none."""

    __slots__ = ("_damage", "_source", "_starts")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._damage = sorted(source.known_damage().values(), key=lambda each: each.offset)
        self._starts = [each.offset for each in self._damage]

    def __bool__(self) -> bool:
        return bool(self._damage)

    def at(self, offset: int, *, verify: bool = True) -> Damage | None:
        """The damage that contains ``offset``, if any.

        :param verify: whether checksums are computed; without them, damaged records look whole
        """
        found = self._last_before(offset)
        if found is None or offset >= found.end_offset or not (found.unproven or not verify):
            return None
        return found if self._stands(found) else None

    def hits(self, offsets: NDArray[np.int64], *, verify: bool) -> NDArray[np.bool_]:
        """For each offset, in any order, whether it lies in known damage."""
        import numpy as np  # not needed by a store that only writes

        hit = np.zeros(len(offsets), np.bool_)
        numbers = np.searchsorted(self._starts, offsets, side="right") - 1
        for number in np.unique(numbers[numbers >= 0]).tolist():
            each = self._damage[number]
            inside = (numbers == number) & (offsets < each.end_offset)
            if inside.any() and (each.unproven or not verify) and self._stands(each):
                hit |= inside
        return hit

    def rest(self, offset: int, *, verify: bool) -> Damage | None:
        """The part from ``offset`` on of the damage that contains it; ``None`` if there is none.

        ``None`` also for damage that begins at ``offset``: a scan from there finds it itself.
        """
        found = self.at(offset, verify=verify)
        return attrs.evolve(found, offset=offset) if found and found.offset < offset else None

    def _last_before(self, offset: int) -> Damage | None:
        number = bisect_right(self._starts, offset) - 1
        return self._damage[number] if number >= 0 else None

    def _stands(self, damage: Damage) -> bool:
        """Whether the damaged bytes are unchanged."""
        for extent in self._source.extents(damage.offset):  # open as long as the loop runs
            if extent.start <= damage.offset < extent.end:
                return damage.is_at(extent.read(damage.offset, len(damage.head)))
            break
        return False
