"""An owner's pages while its store is open: state, a heartbeat, and who is to be woken.

The positions are stored by whoever moves them. At each turn of a thread the owner says that it
lives, and moves the checkpoint over what was made durable meanwhile: at most ``CHECKPOINT_MS``
behind.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.pages.page_view import proof_words, sign_page
from lakelog.files.pages.positions import Positions
from lakelog.files.pages.shared_page import (
    HEARTBEAT,
    PAGE_BYTES,
    PROOF,
    STATE,
    SharedPage,
    State,
    page_path,
)
from lakelog.files.pages.wake_page import WakePage
from lakelog.files.state.checkpoint import CheckpointKeeper

_LOG: Final = logging.getLogger("lakelog")
CHECKPOINT_MS: Final = 5_000


class Publisher:
    """One owner's page.

    :ivar page: the page
    """

    def __init__(
        self,
        files: FileSystem,
        path: Path,
        checkpoint: CheckpointKeeper,
        page: SharedPage | None = None,
    ) -> None:
        """Sign the page.

        :param page: of those that have the store open; without it one is made in state ``OPENING``,
            for a process that has the store for itself

        Raises ``OSError`` where there is no room for a page, and then leaves no new file behind.
        """
        self._checkpoint = checkpoint
        self._files = files
        self._former = None if page is not None else read_file(files, page_path(path))
        self._path = path
        self.page = page or SharedPage.make(files, path)
        sign_page(self.page.words, os.getpid(), dispatches=True)
        self._wake: WakePage | None = None
        self._is_prepared = False
        self._written = time.monotonic()

    def start(self, positions: Positions) -> None:
        """Publish the positions of a log that is in order from now on; nobody moves one yet.

        The owner has written its ``abort`` by now.
        """
        for at, word in zip(PROOF, proof_words(self._path), strict=True):
            self.page.words[at] = word
        self.go_on(positions)
        self.tell(State.OPEN)

    def go_on(self, positions: Positions) -> None:
        """Let others wait for positions here."""
        self._let_wait(positions)
        self._beat()

    def tell(self, state: State) -> None:
        """Say what the owner is doing; a store that failed stays so until it is closed."""
        words = self.page.words
        if words[STATE] != State.FAILED or state in (State.CLOSED, State.OPENING):
            words[STATE] = state

    def failed(self, cause: BaseException) -> None:
        """The store takes no more puts, of no process."""
        self.page.fail(str(cause))
        self.tell(State.FAILED)

    def close(self) -> None:
        """Say that nobody has the store open; its lock is let go after this."""
        self.tell(State.CLOSED)

    def abandon(self) -> None:
        """Leave the page as it was found: the store could not be opened."""
        self.close()
        if self._former is None:
            with suppress(OSError):
                self._files.unlink(page_path(self._path))
        else:
            self.page.memory[:] = self._former[:PAGE_BYTES].ljust(PAGE_BYTES, b"\x00")

    def _let_wait(self, positions: Positions) -> None:
        """Where there is no room for a page to wait at, readers look again and again."""
        try:
            self._wake = page = WakePage.make(self._files, self._path)
        except OSError as error:
            _LOG.warning("%s: readers are not woken, they poll: %s", self._path, error)
            return
        positions.wake, positions.asked = page.wake, page.asked
        self._positions = positions

    def turn(self) -> None:
        """Say that the owner lives, and move the checkpoint now and then."""
        if self._wake is not None and not self._is_prepared:
            self._wake.prepare()  # it takes a while, which no put should
            self._is_prepared = True
        with suppress(OSError):  # there is time to try again
            self._mend_wake()
        self._beat()
        if time.monotonic() - self._written >= CHECKPOINT_MS / 1000:
            with suppress(OSError):  # the keeper has told the store
                self._checkpoint.advance()
            self._written = time.monotonic()

    def _mend_wake(self) -> None:
        """Where the page to wait at is gone or replaced, make another."""
        if self._wake is None:
            return
        if self._wake.is_at(self._path):
            self._wake.mend()
        else:
            self._let_wait(self._positions)

    def _beat(self) -> None:
        self.page.words[HEARTBEAT] = time.time_ns() // 1_000_000
