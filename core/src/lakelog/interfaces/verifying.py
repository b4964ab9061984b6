"""What a dispatcher must do so that operators can check its files, and what such a check finds.

Files are compared as they stand: nothing is completed, repaired or opened for writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch


@attrs.frozen
class Problem:
    """One thing that is wrong with what was built from the log.

    :ivar path: the file, or the folder that lacks one
    :ivar position: byte of the file
    :ivar what: the kind of problem; the same words for all of one kind
    :ivar expected: what should be there, in words; empty where nothing can be told
    :ivar found: what is there
    :ivar recoverable: a crash leaves it so, and a recovery puts it right from the log: what is
        missing at the end, or leads behind the log. In a store that was closed cleanly it is a
        problem like any other
    """

    path: Path
    position: int
    what: str
    expected: str = ""
    found: str = ""
    recoverable: bool = False

    def __str__(self) -> str:
        """For a terminal."""
        pairs = (("expected", self.expected), ("found", self.found))
        more = ", ".join(f"{name} {text}" for name, text in pairs if text)
        return f"{self.path}: at byte {self.position}: {self.what}{': ' if more else ''}{more}"


class Verifier(Protocol):
    """One check on its way, beside one scan of the log; used by one thread."""

    def take(self, batch: RecordBatch) -> Iterator[Problem]:
        """Compare with the next run of records, in log order; to be iterated to its end."""

    def finish(self, end_offset: int) -> Iterator[Problem]:
        """Compare what is left: the log was read to ``end_offset`` bytes."""

    def close(self) -> None:
        """Let go of files."""


@runtime_checkable
class DamageAware(Protocol):
    """A verifier that wants to know of damage in the log, which is no problem of its files."""

    def pass_damage(self, offset: int, end_offset: int) -> None:
        """These bytes of the log are no whole record; told in the order of the log."""


class DamagedRanges:
    """Damage of a log that came by so far."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, offset: int, end_offset: int) -> None:
        """Take the next one, in the order of the log."""
        self._starts.append(offset)
        self._ends.append(end_offset)

    def hits(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each of some places, whether it is inside of damage."""
        import numpy as np  # for operators only

        if not self._starts:
            return np.zeros(len(offsets), np.bool_)
        numbers = np.searchsorted(self._starts, offsets, side="right") - 1
        inside: NDArray[np.bool_] = (numbers >= 0) & (offsets < np.array(self._ends)[numbers])
        return inside


@runtime_checkable
class Verifiable(Protocol):
    """A dispatcher, made to be read only, whose files can be compared with the log."""

    def verifier(self, minimum: int, *, living: bool) -> Verifier:
        """Begin a check; to be called before the scan of the log begins.

        :param minimum: the log's first byte; what stems from records before it is not judged
        :param living: an owner writes meanwhile: what it has not dispatched yet is no problem
        """
