"""A thread of each process that has a store open: sees who else comes and goes.

A process alone keeps the append lock between its appends. A newcomer stores a word of the shared
page, and wakes this thread, which lets go of the lock. Once nobody else is left, it clears the
word.
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
"""A service of a process that died is without a holder for no longer than this."""
_JOIN_S: Final = 0.002
_AT: Final = 8 * SEVERAL


class MemberWatch:
    """The thread.

    :ivar on_turn: called each half of a second
    """

    def __init__(
        self,
        page: SharedPage,
        lock: Membership,
        let_go: Callable[[], None],
        on_turn: Callable[[], None],
    ) -> None:
        """Prepare; nothing runs yet.

        :param let_go: gives the append lock back
        """
        self._page = page
        self._lock = lock
        self._let_go = let_go
        self.on_turn = on_turn
        self._futex = futex(page.memory, _AT)
        self._over = False
        self._thread = Thread(target=self._run, name="lakelog-member", daemon=True)

    def start(self) -> None:
        """Begin; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        started(self._thread)

    def close(self) -> None:
        """End; not from its own thread."""
        self._over = True
        while self._thread.is_alive() and self._thread is not current_thread():
            announce(self._page)  # again and again: it may be about to sleep
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
                self.on_turn()
            except Exception:  # noqa: BLE001  # the thread must go on, or no newcomer could append
                _LOG.exception("%s: a turn of the watching thread failed", self._lock.path)

    def _sleep(self, seen: int) -> None:
        """Half a second; or until there is a newcomer, where there was none."""
        if self._futex is None or not self._futex.wait(seen & 0xFFFF_FFFF, TURN_S):
            time.sleep(TURN_S)

    def _forget_others(self) -> None:
        self._page.words[SEVERAL] = 0


def announce(page: SharedPage) -> None:
    """Let the others know of a newcomer."""
    word = futex(page.memory, _AT)
    if word is not None:
        word.wake()
