"""An owner's pages while its store is open: state, a heartbeat, and who is to be woken.

The positions are stored by whoever moves them. One thread says that the owner lives, and moves
the checkpoint over what was made durable meanwhile: at most ``CHECKPOINT_MS`` behind.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

from lakelog.checkpoint import CheckpointKeeper
from lakelog.files import FileSystem, read_file
from lakelog.pages.pageview import proof_words, sign_page
from lakelog.pages.sharedpage import (
    HEARTBEAT,
    PAGE_BYTES,
    PROOF,
    STATE,
    SharedPage,
    State,
    page_path,
)
from lakelog.pages.wake import WakePage
from lakelog.positions import Positions
from lakelog.threads import started

_LOG: Final = logging.getLogger("lakelog")
CHECKPOINT_MS: Final = 5_000
HEARTBEAT_MS: Final = 500


class Publisher:
    """One owner's page; made in state ``OPENING``, under the store's lock.

    Raises ``OSError`` where there is no room for a page, and then leaves no new file behind.

    :ivar page: the page
    """

    def __init__(self, files: FileSystem, path: Path, checkpoint: CheckpointKeeper) -> None:
        self._checkpoint = checkpoint
        self._files = files
        self._former = read_file(files, page_path(path))
        self._path = path
        self.page = SharedPage.make(files, path)
        sign_page(self.page.words, os.getpid(), dispatches=True)
        self._state = State.OPENING
        self._wake: WakePage | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name="lakelog-positions", daemon=True)

    def start(self, positions: Positions) -> None:
        """Publish the positions of a log that is in order from now on; nobody moves one yet.

        The owner has written its ``abort`` by now.
        """
        for at, word in zip(PROOF, proof_words(self._path), strict=True):
            self.page.words[at] = word
        self._let_wait(positions)
        self._beat()
        self.tell(State.OPEN)
        started(self._thread)

    def tell(self, state: State) -> None:
        """Say what the owner is doing; a store that failed stays so until it is closed."""
        if self._state is not State.FAILED or state is State.CLOSED:
            self.page.words[STATE] = self._state = state

    def failed(self, cause: BaseException) -> None:
        """The store takes no more puts, of no process."""
        self.page.fail(str(cause))
        self.tell(State.FAILED)

    def close(self) -> None:
        """Stop, and say that nobody owns the store; its lock is let go after this."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
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

    def _run(self) -> None:
        if self._wake is not None:
            self._wake.prepare()  # it takes a while, which no put should
        written = time.monotonic()
        while not self._stop.wait(HEARTBEAT_MS / 1000):
            with suppress(OSError):  # there is time to try again
                self._mend_wake()
            self._beat()
            if time.monotonic() - written >= CHECKPOINT_MS / 1000:
                with suppress(OSError):  # the keeper has told the store
                    self._checkpoint.advance()
                written = time.monotonic()

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
