"""The shared page of an owner, as the process that dispatches for it reads and writes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lakelog.errors import StoreError
from lakelog.files import FileSystem
from lakelog.pages.mappedfile import identity_of
from lakelog.pages.pageview import process_start, readable_end
from lakelog.pages.sharedpage import (
    DISPATCHED,
    DISPATCHER_PID,
    DISPATCHER_START,
    MAGIC,
    MINIMUM,
    OWNER_PID,
    PAGE_BYTES,
    RECORDS,
    page_path,
)

WORD_MOST: Final = (1 << 64) - 1


class OwnersPage:
    """Bounds of the log, and the word ``dispatched``, which nobody else stores meanwhile."""

    def __init__(self, files: FileSystem, path: Path, owner: int) -> None:
        self._files = files
        self._path = page_path(path)
        self._owner = owner
        self._open()

    def _open(self) -> None:
        """Map the file that has the name now."""
        self._identity = identity_of(self._path, PAGE_BYTES)
        try:
            file = self._files.open(self._path, write=True)
        except OSError as error:
            raise StoreError(f"the owner's page cannot be opened: {error}") from error
        try:
            if self._identity is None:
                raise StoreError("it is no page of an owner", path=self._path)
            self._words = memoryview(file.map(PAGE_BYTES, writable=True)).cast("Q")
        finally:
            file.close()
        self.sign()

    def sign(self) -> None:
        """Say who dispatches."""
        pid = os.getpid()
        self._words[DISPATCHER_PID] = pid
        self._words[DISPATCHER_START] = process_start(pid) or 0

    def look_again(self) -> None:
        """Go on with the owner's new page, if it had to make one; raises ``StoreError``."""
        found = identity_of(self._path, PAGE_BYTES)
        if found not in (self._identity, None):
            self._open()
        elif self._words[DISPATCHER_PID] != os.getpid():
            self.sign()

    @property
    def is_whole(self) -> bool:
        """Whether it is the owner's; a damaged one is made good by its next heartbeat."""
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
