"""An owner's pages while its store is open: positions, state, a heartbeat, and who is to be woken.

The positions are stored by whoever moves them. One thread says that the owner lives, and moves
the checkpoint over what was made durable meanwhile: at most ``CHECKPOINT_MS`` behind. It also makes
good what somebody else did to the pages: words that are wrong, a file that is gone or replaced.
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
from lakelog.pages.positionspage import (
    FLAGS,
    HEARTBEAT,
    HEARTBEAT_MS,
    NO_PROOF,
    PAGE_BYTES,
    PROOF,
    STAGED,
    STATE,
    State,
    make_page,
    page_identity,
    page_path,
    proof_words,
    sign_page,
)
from lakelog.pages.wake import WakePage
from lakelog.positions import Positions
from lakelog.threads import started

_LOG: Final = logging.getLogger("lakelog")
CHECKPOINT_MS: Final = 5_000


class Publisher:
    """One owner's page; made in state ``OPENING``, under the store's lock.

    Raises ``OSError`` where there is no room for a page, and then leaves no new file behind.
    """

    def __init__(self, files: FileSystem, path: Path, checkpoint: CheckpointKeeper) -> None:
        self._checkpoint = checkpoint
        self._page = page_path(path)
        self._files = files
        self._former = read_file(files, self._page)
        self._path = path
        self._words = make_page(files, path)
        self._identity = page_identity(path)
        self._state = State.OPENING
        self._flags = 0
        self._proof: tuple[int, ...] = NO_PROOF
        self._wake: WakePage | None = None
        self._positions: Positions | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name="lakelog-positions", daemon=True)

    def start(self, positions: Positions, *, staged: bool) -> None:
        """Publish the positions of a log that is in order from now on; nobody moves one yet.

        The owner has written its ``abort`` by now.

        :param staged: whether what was confirmed can be behind what other processes see
        """
        self._words[FLAGS] = self._flags = STAGED if staged else 0
        self._positions = positions
        positions.publish(self._words)
        self._proof = proof_words(self._path)
        self._prove()
        self._let_wait(positions)
        self._beat()
        self.tell(State.OPEN)
        started(self._thread)

    def tell(self, state: State) -> None:
        """Say what the owner is doing; a store that failed stays so until it is closed."""
        if self._state is not State.FAILED or state is State.CLOSED:
            self._words[STATE] = self._state = state

    def failed(self, _cause: BaseException) -> None:
        """The store takes no more puts."""
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
                self._files.unlink(self._page)
        else:
            self._words[:] = memoryview(self._former.ljust(PAGE_BYTES, b"\x00")).cast("Q")

    def _let_wait(self, positions: Positions) -> None:
        """Where there is no room for a page to wait at, readers look again and again."""
        try:
            self._wake = page = WakePage.make(self._files, self._path)
        except OSError as error:
            _LOG.warning("%s: readers are not woken, they poll: %s", self._path, error)
            return
        positions.wake, positions.asked = page.wake, page.asked

    def _run(self) -> None:
        if self._wake is not None:
            self._wake.prepare()  # it takes a while, which no put should
        written = time.monotonic()
        while not self._stop.wait(HEARTBEAT_MS / 1000):
            with suppress(OSError):  # there is time to try again
                self._mend()
            self._beat()
            if time.monotonic() - written >= CHECKPOINT_MS / 1000:
                with suppress(OSError):  # the keeper has told the store
                    self._checkpoint.advance()
                written = time.monotonic()

    def _mend(self) -> None:
        """Store anew what somebody else has changed."""
        positions = self._positions
        if positions is None:
            return
        if page_identity(self._path) != self._identity:
            _LOG.warning("%s: the positions page is gone; it is made anew", self._path)
            self._words = positions.words = make_page(self._files, self._path)
            self._identity = page_identity(self._path)
        sign_page(self._words, os.getpid(), dispatches=not positions.elsewhere)
        positions.mend()  # before the state and the proof: others go by the positions from then on
        self._prove()
        self._words[FLAGS], self._words[STATE] = self._flags, self._state
        self._mend_wake(positions)

    def _mend_wake(self, positions: Positions) -> None:
        if self._wake is None or self._wake.is_at(self._path):
            if self._wake is not None:
                self._wake.mend()
        else:
            self._let_wait(positions)

    def _prove(self) -> None:
        for at, word in zip(PROOF, self._proof, strict=True):
            self._words[at] = word

    def _beat(self) -> None:
        self._words[HEARTBEAT] = time.time_ns() // 1_000_000
