"""Whether a store accepts puts, or refuses them temporarily or until the next open."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

from lakelog.errors import PutRefused, StoreFailed, ThreadNotStarted
from lakelog.results import PutStatus
from lakelog.runtime.locks import Mutex
from lakelog.runtime.threads import started

_LOG: Final = logging.getLogger("lakelog")


class Health:
    """The state of one open store.

    :ivar refusal: why puts are refused; ``None`` while they are accepted
    :ivar paused: why puts are refused temporarily, if they are
    :ivar failure: the error that failed the store, if any
    :ivar elsewhere: returns why another process stops all puts; ``None`` if none does
    """

    def __init__(self, path: Path, on_failure: Callable[[BaseException], None]) -> None:
        self.path = path
        self.refusal: str | None = None
        self.failure: BaseException | None = None
        self.paused: str | None = None
        self.elsewhere: Callable[[], str | None] = lambda: None
        self._for_good = False
        self._lacks_room = False
        self._listeners = [on_failure]
        self._lock = Mutex()

    def add_listener(self, on_failure: Callable[[BaseException], None]) -> None:
        """Add a listener for the store's failure; it is called before the earlier ones."""
        self._listeners.insert(0, on_failure)

    def refuse(self, why: str) -> None:
        """Refuse all further puts; the first reason is kept."""
        with self._lock:
            if not self._for_good:
                self.refusal, self._for_good = why, True

    def forked(self, why: str) -> None:
        """Refuse puts in a child process, where a missing thread may hold the lock."""
        self.refusal, self._for_good = why, True

    def pause(self, why: str) -> None:
        """Refuse puts until :meth:`unpause`; a closed or failed store stays closed or failed."""
        with self._lock:
            is_news, self.paused = self.paused is None, why
            if not self._for_good:
                self.refusal = why
        if is_news:
            _LOG.warning("%s: puts are refused: %s", self.path, why)

    def unpause(self) -> None:
        """Accept puts again."""
        with self._lock:
            is_news, self.paused = self.paused is not None, None
            if not self._for_good:
                self.refusal = None
        if is_news:
            _LOG.info("%s: puts are accepted again", self.path)

    def lacks_room(self, why: str) -> None:
        """Note that the log cannot grow; each put that needs space tries again to allocate it."""
        if not self._lacks_room:
            self._lacks_room = _log(logging.WARNING, "%s: puts are refused: %s", self.path, why)

    def has_room(self) -> None:
        """Note that the log has grown."""
        if self._lacks_room:
            self._lacks_room = False
            _log(logging.INFO, "%s: puts are accepted again: there is room for the log", self.path)

    @property
    def takes_puts(self) -> bool:
        """Whether puts are accepted by this process and by the others."""
        return self.refusal is None and self.elsewhere() is None

    def check_elsewhere(self) -> None:
        """Raise :class:`~lakelog.errors.PutRefused` if another process stops all puts."""
        why = self.elsewhere()
        if why is not None:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, why)

    def refused(self) -> PutRefused:
        """Build the error for a refused put."""
        return PutRefused(
            PutStatus.SERVICE_NOT_AVAILABLE, self.refusal or "the store accepts no puts"
        )

    def fail(self, cause: BaseException) -> StoreFailed:
        """Fail the store after a failed write, sync, allocation or rename; notify listeners once.

        :returns: the error to raise to waiters
        """
        with self._lock:
            first = self.failure is None
            if first:
                self.failure, self._for_good = cause, True
                self.refusal = f"the store failed: {cause}; close it and open it again"
        if first:
            for listener in self._listeners:
                listener(cause)
        return self.failed()

    def failed(self) -> StoreFailed:
        """The error for waiters of a failed store."""
        if isinstance(self.failure, StoreFailed):
            return self.failure
        error = StoreFailed(
            f"a write or sync failed ({self.failure}); check the disk, then reopen the store",
            path=self.path,
        )
        error.__cause__ = self.failure
        return error


def _log(level: int, text: str, *more: object) -> bool:
    """Log in a thread: the append section is held here, and a log handler may put to this store.

    ``False`` if no thread can be started; the put itself raises the error then.
    """
    thread = Thread(target=_LOG.log, args=(level, text, *more), name="lakelog-log", daemon=True)
    with suppress(ThreadNotStarted):
        return started(thread) is thread
    return False
