"""Publishes an owner's state in the shared page: state, heartbeat, and wake-ups of waiters.

Positions are stored by the code that moves them. At each turn of the watch thread, the owner stores
a heartbeat. Every ``CHECKPOINT_MS`` it also advances the checkpoint to the durable end.
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
    OwnerState,
    SharedPage,
    page_path,
)
from lakelog.files.pages.wake_page import WakePage
from lakelog_interfaces.checkpoint import CheckpointKeeper

_LOG: Final = logging.getLogger("lakelog")
CHECKPOINT_MS: Final = 5_000


class Publisher:
    """Publishes one owner's state.

    :ivar page: the shared page
    """

    def __init__(
        self,
        files: FileSystem,
        path: Path,
        checkpoint: CheckpointKeeper,
        page: SharedPage | None = None,
    ) -> None:
        """Sign the page.

        :param page: the page of the processes that have the store open; without it, a page in state
            ``OPENING`` is created for an exclusive owner

        Raises ``OSError`` if a page cannot be allocated, and then leaves no new file.
        """
        self._checkpoint = checkpoint
        self._files = files
        self._former = None if page is not None else read_file(files, page_path(path))
        self._path = path
        self.page = page or SharedPage.make(files, path)
        sign_page(self.page.words, os.getpid())
        self._wake: WakePage | None = None
        self._written = time.monotonic()

    def start(self, positions: Positions) -> None:
        """Publish the positions of a recovered log, before any of them moves.

        The owner has already written ``abort``.
        """
        for at, word in zip(PROOF, proof_words(self._path), strict=True):
            self.page.words[at] = word
        self.go_on(positions)
        self.set_state(OwnerState.OPEN)

    def go_on(self, positions: Positions) -> None:
        """Enable waiting for positions in other processes."""
        self._let_wait(positions)
        self._beat()

    def set_state(self, state: OwnerState) -> None:
        """Publish the owner's state; ``FAILED`` stays until the store is closed."""
        words = self.page.words
        if words[STATE] != OwnerState.FAILED or state in (OwnerState.CLOSED, OwnerState.OPENING):
            words[STATE] = state

    def failed(self, cause: BaseException) -> None:
        """Publish the failure: no process may put any more."""
        self.page.fail(str(cause))
        self.set_state(OwnerState.FAILED)

    def close(self) -> None:
        """Publish that the store is closed; the lock is released afterwards."""
        self.set_state(OwnerState.CLOSED)

    def abandon(self) -> None:
        """Restore the page as it was found, after a failed open."""
        self.close()
        if self._former is None:
            with suppress(OSError):
                self._files.unlink(page_path(self._path))
        else:
            self.page.memory[:] = self._former[:PAGE_BYTES].ljust(PAGE_BYTES, b"\x00")

    def _let_wait(self, positions: Positions) -> None:
        """Create the wake page; if it cannot be allocated, readers poll."""
        try:
            self._wake = page = WakePage.make(self._files, self._path)
        except OSError as error:
            _LOG.warning("%s: readers cannot be woken, and poll instead: %s", self._path, error)
            return
        positions.wake, positions.asked = page.wake, page.asked
        self._positions = positions

    def turn(self) -> None:
        """Store a heartbeat, and advance the checkpoint periodically."""
        with suppress(OSError):  # tried again at the next turn
            self._repair_wake_page()
        self._beat()
        if time.monotonic() - self._written >= CHECKPOINT_MS / 1000:
            with suppress(OSError):  # the keeper has reported it to the store
                self._checkpoint.advance()
            self._written = time.monotonic()

    def _repair_wake_page(self) -> None:
        """Create a new wake page if the file is missing or was replaced."""
        if self._wake is None:
            return
        if self._wake.is_at(self._path):
            self._wake.repair()
        else:
            self._let_wait(self._positions)

    def _beat(self) -> None:
        self.page.words[HEARTBEAT] = time.time_ns() // 1_000_000
