"""The readable range of a log, from an owner's positions or from the files."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import attrs

from lakelog.files.pages.page_view import PageView
from lakelog.files.pages.positions import Positions
from lakelog.log.reading.sources import FileSource

TRUSTED_S: Final = 0.001
"""How long bounds found in the files are used again, while no process has the store open."""


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


@attrs.define(eq=False)
class ReaderBounds:
    """The bounds of a reader: from a living owner's page, else from the files.

    A call needs the bounds several times, and reading them from the files takes eight system calls.
    So they are used again for a millisecond. A process that opens the store is noticed that much
    later.

    :ivar page: returns the current page, if any
    :ivar clean_end: returns the end noted by a clean stop, while the note is valid
    """

    source: FileSource
    page: Callable[[], PageView | None]
    clean_end: Callable[[], int | None]
    _of_files: tuple[int, int | None] = attrs.field(default=(0, None), init=False)
    _until: float = attrs.field(default=0.0, init=False)

    def minimum(self) -> int:
        """The page's minimum, or the start of the first segment."""
        page = self.page()
        return self._from_files()[0] if page is None else page.minimum

    def end(self) -> int | None:
        """The readable end; ``None`` if it must be found by reading."""
        page = self.page()
        return self._from_files()[1] if page is None else page.readable

    def _from_files(self) -> tuple[int, int | None]:
        now = time.monotonic()
        if now >= self._until:
            self._of_files = self.source.first() or 0, self.clean_end()
            self._until = now + TRUSTED_S
        return self._of_files
