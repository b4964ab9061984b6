"""A thread of each writing process that notices other processes joining and leaving.

A process alone keeps the append lock between its appends. A process that joins sets a word of the
shared page, and wakes this thread, which releases the lock. Once the process is alone again, the
thread clears the word.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Thread, current_thread
from typing import Final

from lakelog.files.pages.futex import futex
from lakelog.files.pages.shared_page import SEVERAL, SharedPage
from lakelog.files.shared.membership import Membership
from lakelog.runtime.threads import started

_LOG: Final = logging.getLogger("lakelog")
TURN_S: Final = 0.5
"""Seconds between turns; services of a dead process are taken over within this time."""
_JOIN_S: Final = 0.002
_AT: Final = 8 * SEVERAL


class MemberWatch:
    """The watch thread.

    :ivar on_turn: called every :data:`TURN_S`, if set
    """

    def __init__(
        self,
        page: SharedPage,
        lock: Membership,
        let_go: Callable[[], None],
    ) -> None:
        """Prepare; nothing runs yet.

        :param let_go: releases the append lock
        """
        self._page = page
        self._lock = lock
        self._let_go = let_go
        self.on_turn: Callable[[], None] | None = None
        self._futex = futex(page.memory, _AT)
        self._over = False
        self._thread = Thread(target=self._run, name="lakelog-member", daemon=True)

    def start(self) -> None:
        """Start the thread; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        started(self._thread)

    def close(self) -> None:
        """Stop the thread; must not be called from it."""
        self._over = True
        while self._thread.is_alive() and self._thread is not current_thread():
            announce(self._page)  # repeatedly: the thread may be about to sleep
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        words, seen = self._page.words, 0
        while not self._over:
            self._sleep(seen)
            seen = words[SEVERAL]
            if self._over:
                break
            try:
                if seen:
                    self._let_go()
                    self._lock.if_alone(self._forget_others)
                if self.on_turn is not None:
                    self.on_turn()
            except Exception:  # noqa: BLE001  # the thread must continue, or no joining process could append
                _LOG.exception("%s: a turn of the watching thread failed", self._lock.path)

    def _sleep(self, seen: int) -> None:
        """Sleep for :data:`TURN_S`, or until another process joins."""
        if not self._futex.wait(seen & 0xFFFF_FFFF, TURN_S):
            time.sleep(TURN_S)

    def _forget_others(self) -> None:
        self._page.words[SEVERAL] = 0


def announce(page: SharedPage) -> None:
    """Notify the other processes that one has joined."""
    futex(page.memory, _AT).wake()
