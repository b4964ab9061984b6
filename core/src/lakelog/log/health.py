"""Whether a store takes puts, and if not, why: for a while, or for good until the next open."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Final

from lakelog.errors import PutRefused, StoreFailed, ThreadNotStarted
from lakelog.runtime.threads import started
from lakelog.status import PutStatus

_LOG: Final = logging.getLogger("lakelog")


class Health:
    """The state of one open store.

    :ivar refusal: why puts are refused, or ``None`` while they are taken
    :ivar paused: why they are refused for a while, if they are
    :ivar failure: what made the store fail, if it did
    :ivar elsewhere: why another process lets nobody put, if one does
    """

    def __init__(self, path: Path, on_failure: Callable[[BaseException], None]) -> None:
        self.path = path
        self.refusal: str | None = None
        self.failure: BaseException | None = None
        self.paused: str | None = None
        self.elsewhere: Callable[[], str | None] = _nobody
        self._for_good = False
        self._lacks_room = False
        self._listeners = [on_failure]
        self._lock = Lock()

    def also(self, on_failure: Callable[[BaseException], None]) -> None:
        """Tell one more when the store fails, before those who were there already."""
        self._listeners.insert(0, on_failure)

    def refuse(self, why: str) -> None:
        """Take no more puts."""
        with self._lock:
            if not self._for_good:
                self.refusal, self._for_good = why, True

    def forked(self, why: str) -> None:
        """The same in a child process, where a thread that is not there may hold the lock."""
        self.refusal, self._for_good = why, True

    def pause(self, why: str) -> None:
        """Take no puts until :meth:`unpause`; a store that is closed or failed stays so."""
        with self._lock:
            is_news, self.paused = self.paused is None, why
            if not self._for_good:
                self.refusal = why
        if is_news:
            _LOG.warning("%s: puts are refused: %s", self.path, why)

    def unpause(self) -> None:
        """Take puts again."""
        with self._lock:
            is_news, self.paused = self.paused is not None, None
            if not self._for_good:
                self.refusal = None
        if is_news:
            _LOG.info("%s: puts are taken again", self.path)

    def lacks_room(self, why: str) -> None:
        """The log cannot grow; puts that need it to are refused, and each tries anew."""
        if not self._lacks_room:
            self._lacks_room = _tell(logging.WARNING, "%s: puts are refused: %s", self.path, why)

    def has_room(self) -> None:
        """The log has grown."""
        if self._lacks_room:
            self._lacks_room = False
            _tell(logging.INFO, "%s: puts are taken again: there is room for the log", self.path)

    @property
    def takes_puts(self) -> bool:
        """Whether puts are taken, of this process and as others say."""
        return self.refusal is None and self.elsewhere() is None

    def check_elsewhere(self) -> None:
        """Raise :class:`~lakelog.errors.PutRefused` where another process lets nobody put."""
        why = self.elsewhere()
        if why is not None:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, why)

    def refused(self) -> PutRefused:
        """The error for a put that comes too late."""
        return PutRefused(
            PutStatus.SERVICE_NOT_AVAILABLE, self.refusal or "the store takes no puts"
        )

    def fail(self, cause: BaseException) -> StoreFailed:
        """Note that a write, sync, allocation or rename failed, and tell once.

        :returns: the error to raise to whoever waits for it
        """
        with self._lock:
            first = self.failure is None
            if first:
                self.failure, self._for_good = cause, True
                self.refusal = f"the store failed: {cause}; close it and open it again"
        if first:
            for told in self._listeners:
                told(cause)
        return self.failed()

    def failed(self) -> StoreFailed:
        """The error for whoever waits on a store that failed."""
        error = StoreFailed(
            f"a write or sync failed ({self.failure}); close the store, see to the disk, reopen",
            path=self.path,
        )
        error.__cause__ = self.failure
        return error


def _nobody() -> str | None:
    """Nobody else has a say."""
    return None


def _tell(level: int, text: str, *more: object) -> bool:
    """Log from a thread: the log's lock is held, and a handler may put into this very store.

    ``False`` where no thread can be had; the put itself says what is wrong.
    """
    teller = Thread(target=_LOG.log, args=(level, text, *more), name="lakelog-log", daemon=True)
    with suppress(ThreadNotStarted):
        return started(teller) is teller
    return False
