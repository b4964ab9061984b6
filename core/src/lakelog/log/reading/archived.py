"""The log and its archive as one source: older segments are read from the archive."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Protocol

import attrs

from lakelog.interfaces import SegmentSource
from lakelog.log.reading.pieces import Damage
from lakelog.log.reading.source import Extent, Source


class _Bounds(Protocol):
    def minimum(self) -> int: ...
    def end(self) -> int | None: ...


@attrs.define
class ArchivedExtent:
    """An archived segment; all of its bytes count as data."""

    archive: SegmentSource
    start: int
    end: int
    path: None = None

    def read(self, offset: int, length: int) -> memoryview:
        """Read at most to the end of the segment."""
        length = min(length, self.end - offset)
        return memoryview(self.archive.read(self.start, offset - self.start, length))

    def next_data(self, offset: int) -> int | None:
        """Return ``offset``: holes are not known in an archive."""
        return offset


@attrs.frozen
class ArchiveBackedSource:
    """A ``Source``: the archive's segments, then ``log``."""

    log: Source
    archive: SegmentSource
    size_bytes: int

    def known_damage(self) -> Mapping[int, Damage]:
        """The known damage of the log."""
        return self.log.known_damage()

    def starts(self) -> list[int]:
        """The start offset of each segment."""
        here = self.log.starts()
        return [*(each for each in self.archive.starts() if not here or each < here[0]), *here]

    def extents(self, start: int) -> Iterator[Extent]:
        """Yield each segment; one deleted meanwhile is in the archive, as archiving comes first."""
        at: int | None = start
        while at is not None:
            older = self._older(at)
            if older is None:
                at = yield from self._of_log(at)
            else:
                at = older + self.size_bytes
                yield ArchivedExtent(self.archive, older, at)

    def _of_log(self, at: int) -> Generator[Extent, None, int | None]:
        """Yield the log's segments; return the offset of a segment archived meanwhile, if any."""
        for extent in self.log.extents(at):
            if extent.start > at and self._older(at) is not None:
                return at
            yield extent
            at = extent.end
        return None

    def _older(self, at: int) -> int | None:
        """The next segment from ``at`` that only the archive has."""
        here = next(iter(self.log.starts()), None)
        if here is not None and at >= here:
            return None
        found = (each for each in self.archive.starts() if each + self.size_bytes > at)
        older = next(found, None)
        return None if older is None or (here is not None and older >= here) else older


@attrs.frozen
class OlderBounds:
    """The bounds from the start of the archive to the end of the log."""

    log: _Bounds
    archive: SegmentSource

    def minimum(self) -> int:
        """First offset of archive and log."""
        here = self.log.minimum()
        return min(next(iter(self.archive.starts()), here), here)

    def end(self) -> int | None:
        """End of the log."""
        return self.log.end()
