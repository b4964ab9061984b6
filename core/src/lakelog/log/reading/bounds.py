"""Between which offsets a log can be read: an owner knows it, everybody else goes by the files."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from lakelog.files.pages.page_view import PageView
from lakelog.files.pages.positions import Positions
from lakelog.log.reading.source import FileSource


@attrs.frozen
class OwnedBounds:
    """The owner knows where its log begins and ends."""

    positions: Positions

    def minimum(self) -> int:
        """First byte that is still there."""
        return self.positions.minimum

    def end(self) -> int | None:
        """End of what can be read."""
        return self.positions.readable


@attrs.frozen
class FileBounds:
    """Everybody else goes by the files."""

    source: FileSource

    def minimum(self) -> int:
        """Where the first segment starts; 0 where none is."""
        return self.source.first() or 0

    def end(self) -> int | None:
        """To be found out by reading."""
        return None


@attrs.frozen
class ReaderBounds:
    """A reader goes by the page of a living owner, and without one by the files.

    :ivar page: the page to go by now, if any
    :ivar clean_end: where the log ends by what a clean stop noted, if that still counts
    """

    source: FileSource
    page: Callable[[], PageView | None]
    clean_end: Callable[[], int | None]

    def minimum(self) -> int:
        """What the page says, or where the first segment starts."""
        page = self.page()
        return FileBounds(self.source).minimum() if page is None else page.minimum

    def end(self) -> int | None:
        """End of what can be read; or to be found out."""
        page = self.page()
        return self.clean_end() if page is None else page.readable
