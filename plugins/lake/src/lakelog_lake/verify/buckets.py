"""Stores the compared values of rows on disk, by part of the log; rows arrive in any order.

A part is :data:`PART_BYTES` of the log. A row takes 56 bytes, far less than in the table, and
memory is bounded.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from lakelog_lake.verify.row_facts import FACT

if TYPE_CHECKING:
    from lakelog_lake.verify.row_facts import Facts

PART_BYTES: Final = 128 << 20


@attrs.define
class Buckets:
    """The compared values by part.

    :ivar folder: an empty folder for this object only
    :ivar part_bytes: bytes of the log in one part
    :ivar parts: indexes of the parts with rows
    """

    folder: Path
    part_bytes: int = PART_BYTES
    parts: set[int] = attrs.field(factory=set)

    def add(self, facts: Facts) -> None:
        """Add each row to its part."""
        numbers = self.numbers(facts)
        for part in np.unique(numbers).tolist():
            self.parts.add(part)
            with self._file(part).open("ab") as file:
                file.write(facts[numbers == part].tobytes())

    def numbers(self, facts: Facts) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The index of each row's part."""
        return np.asarray(facts["at"] // self.part_bytes, np.int64)

    def take(self, part: int) -> Facts:
        """Return all rows of a part, and remove them."""
        if part not in self.parts:
            return np.zeros(0, FACT)
        self.parts.remove(part)
        found = np.fromfile(self._file(part), FACT)
        self._file(part).unlink()
        return found

    def _file(self, part: int) -> Path:
        return self.folder / str(part)
