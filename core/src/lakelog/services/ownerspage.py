"""The shared page of an owner, as the process that dispatches for it reads and writes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.page_view import process_start, readable_end
from lakelog.files.pages.shared_page import (
    DISPATCHED,
    DISPATCHER_PID,
    DISPATCHER_START,
    MAGIC,
    MINIMUM,
    OWNER_PID,
    RECORDS,
    SharedPage,
)

WORD_MOST: Final = (1 << 64) - 1


class OwnersPage:
    """Bounds of the log, and the word ``dispatched``, which nobody else stores meanwhile."""

    def __init__(self, files: FileSystem, path: Path, owner: int) -> None:
        """Map the page of the store directory ``path``, and say who dispatches.

        Raises :class:`~lakelog.errors.StoreError` where there is none.
        """
        self._owner = owner
        self._words = SharedPage.join(files, path).words
        pid = os.getpid()
        self._words[DISPATCHER_PID] = pid
        self._words[DISPATCHER_START] = process_start(pid) or 0

    @property
    def is_whole(self) -> bool:
        """Whether it is the owner's; a damaged one says nothing."""
        return self._words[0] == MAGIC and self._words[OWNER_PID] == self._owner

    def minimum(self) -> int:
        """First byte that is there."""
        return self._words[MINIMUM]

    def end(self) -> int:
        """End of what other processes can read."""
        return readable_end(self._words)

    @property
    def dispatched(self) -> int:
        """What the word says."""
        return self._words[DISPATCHED]

    @dispatched.setter
    def dispatched(self, offset: int) -> None:
        self._words[DISPATCHED] = offset

    def count_records(self, count: int) -> None:
        """Let others see that ``count`` more records were dispatched."""
        self._words[RECORDS] = (
            self._words[RECORDS] + count
        ) & WORD_MOST  # whoever has written to it
