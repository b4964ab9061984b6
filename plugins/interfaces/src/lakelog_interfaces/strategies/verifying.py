"""The interface by which a dispatcher's files are checked against the log, and the findings.

Files are only read: nothing is completed or repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from lakelog_format.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog_format.codec import RecordBatch


@attrs.frozen
class Problem:
    """One fault in files that were built from the log.

    :ivar path: the file, or the folder that lacks one
    :ivar position: byte position in the file
    :ivar what: the kind of problem, in the same words for all of one kind
    :ivar expected: the expected content, in words; empty if unknown
    :ivar found: the actual content
    :ivar recoverable: whether a crash can cause it and recovery repairs it from the log: missing
        units at the end, or units beyond the log. After a clean close it is an ordinary problem.
    """

    path: Path
    position: int
    what: str
    expected: str = ""
    found: str = ""
    recoverable: bool = False

    def __str__(self) -> str:
        """Format it for a terminal."""
        pairs = (("expected", self.expected), ("found", self.found))
        more = ", ".join(f"{name} {text}" for name, text in pairs if text)
        return f"{self.path}: at byte {self.position}: {self.what}{': ' if more else ''}{more}"


class Verifier(Protocol):
    """A check in progress, alongside one scan of the log; used by one thread."""

    def take(self, batch: RecordBatch) -> Iterator[Problem]:
        """Compare with the next run of records, in log order; iterate to the end."""

    def finish(self, end_offset: int) -> Iterator[Problem]:
        """Compare the remainder: the log was read up to ``end_offset`` bytes."""

    def close(self) -> None:
        """Close files."""


@runtime_checkable
class DamageAware(Protocol):
    """A verifier that also receives damage of the log, which is no fault of its own files."""

    def pass_damage(self, offset: int, end_offset: int) -> None:
        """Record that these bytes are not a whole record; called in log order."""


class DamagedRanges:
    """The damaged ranges of the log found so far."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, offset: int, end_offset: int) -> None:
        """Add the next range, in log order."""
        self._starts.append(offset)
        self._ends.append(end_offset)

    def hits(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``offsets`` lie inside a damaged range."""
        if not self._starts:
            return np.zeros(len(offsets), np.bool_)
        numbers = np.searchsorted(self._starts, offsets, side="right") - 1
        inside: NDArray[np.bool_] = (numbers >= 0) & (offsets < np.array(self._ends)[numbers])
        return inside


@runtime_checkable
class Verifiable(Protocol):
    """A read-only dispatcher whose files can be compared with the log."""

    def verifier(self, minimum: int, *, living: bool) -> Verifier:
        """Start a check, before the scan of the log starts.

        :param minimum: start of the log; units of earlier records are not checked
        :param living: whether an owner writes meanwhile, so that missing units at the end are
            normal
        """
