"""Which places of a log are known to be no part of it, for reads that go straight to a record.

A scan meets known damage on its way. A unit of a queue, the key index, or an offset that somebody
kept lead right into it, where old, whole records may stand that nothing proves. As in a scan, what
is known counts only while the bytes are those that were judged.
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
    """What one source knows; false where that is nothing, so that nobody need ask."""

    __slots__ = ("_damage", "_source", "_starts")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._damage = sorted(source.known_damage().values(), key=lambda each: each.offset)
        self._starts = [each.offset for each in self._damage]

    def __bool__(self) -> bool:
        return bool(self._damage)

    def at(self, offset: int, *, verify: bool = True) -> Damage | None:
        """The damage that a record at ``offset`` stands in.

        :param verify: whether checksums are computed; without them, what is damaged looks whole
        """
        found = self._last_before(offset)
        if found is None or offset >= found.end_offset or not (found.unproven or not verify):
            return None
        return found if self._stands(found) else None

    def hits(self, offsets: NDArray[np.int64], *, verify: bool) -> NDArray[np.bool_]:
        """For each of some places in any order, whether it is inside of known damage."""
        import numpy as np  # a store that only writes can do without

        hit = np.zeros(len(offsets), np.bool_)
        numbers = np.searchsorted(self._starts, offsets, side="right") - 1
        for number in np.unique(numbers[numbers >= 0]).tolist():
            each = self._damage[number]
            inside = (numbers == number) & (offsets < each.end_offset)
            if inside.any() and (each.unproven or not verify) and self._stands(each):
                hit |= inside
        return hit

    def rest(self, offset: int, *, verify: bool) -> Damage | None:
        """What follows ``offset`` of the damage that it is in; ``None`` where it is in none.

        Nothing of damage that begins at ``offset``: a scan that begins there meets it.
        """
        found = self.at(offset, verify=verify)
        return attrs.evolve(found, offset=offset) if found and found.offset < offset else None

    def _last_before(self, offset: int) -> Damage | None:
        number = bisect_right(self._starts, offset) - 1
        return self._damage[number] if number >= 0 else None

    def _stands(self, damage: Damage) -> bool:
        """Whether the bytes are still those that were judged."""
        for extent in self._source.extents(damage.offset):  # open for as long as the loop holds it
            if extent.start <= damage.offset < extent.end:
                return damage.is_at(extent.read(damage.offset, len(damage.head)))
            break
        return False
