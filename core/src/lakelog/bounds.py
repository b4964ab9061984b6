"""Between which offsets a log can be read: an owner knows it, everybody else goes by the files."""

from __future__ import annotations

import attrs

from lakelog.positions import Positions
from lakelog.source import FileSource


@attrs.frozen
class OwnedBounds:
    """The owner knows where its log begins and ends."""

    positions: Positions

    def minimum(self) -> int:
        """First byte that is still there."""
        return self.positions.minimum

    def end(self) -> int | None:
        """Behind the last put that has its result."""
        return self.positions.confirmed


@attrs.frozen
class FileBounds:
    """Everybody else goes by the files."""

    source: FileSource

    def minimum(self) -> int:
        """Where the first segment starts."""
        return next(iter(self.source.starts()), 0)

    def end(self) -> int | None:
        """To be found out by reading."""
        return None
