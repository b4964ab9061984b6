"""The readable range of a log: an owner's positions, or what the files show."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from lakelog.files.pages.page_view import PageView
from lakelog.files.pages.positions import Positions
from lakelog.log.reading.source import FileSource


@attrs.frozen
class OwnedBounds:
    """The bounds of an owner, from its positions."""

    positions: Positions

    def minimum(self) -> int:
        """Offset of the first byte still in the log."""
        return self.positions.minimum

    def end(self) -> int | None:
        """The readable end."""
        return self.positions.readable


@attrs.frozen
class FileBounds:
    """The bounds according to the files."""

    source: FileSource

    def minimum(self) -> int:
        """Start of the first segment; 0 without segments."""
        return self.source.first() or 0

    def end(self) -> int | None:
        """``None``: found by reading."""
        return None


@attrs.frozen
class ReaderBounds:
    """The bounds of a reader: from a living owner's page, else from the files.

    :ivar page: returns the current page, if any
    :ivar clean_end: returns the end noted by a clean stop, while the note is valid
    """

    source: FileSource
    page: Callable[[], PageView | None]
    clean_end: Callable[[], int | None]

    def minimum(self) -> int:
        """The page's minimum, or the start of the first segment."""
        page = self.page()
        return FileBounds(self.source).minimum() if page is None else page.minimum

    def end(self) -> int | None:
        """The readable end; ``None`` if it must be found by reading."""
        page = self.page()
        return self.clean_end() if page is None else page.readable
