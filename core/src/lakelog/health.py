"""Whether a store takes puts, and if not, why; a failure is for good until the next open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from lakelog.errors import PutRefused, StoreFailed
from lakelog.status import PutStatus


class Health:
    """The state of one open store.

    :ivar refusal: why puts are refused, or ``None`` while they are taken
    :ivar failure: what made the store fail, if it did
    """

    def __init__(self, path: Path, on_failure: Callable[[BaseException], None]) -> None:
        self.path = path
        self.refusal: str | None = None
        self.failure: BaseException | None = None
        self._listeners = [on_failure]
        self._lock = Lock()

    def also(self, on_failure: Callable[[BaseException], None]) -> None:
        """Tell one more when the store fails, before those who were there already."""
        self._listeners.insert(0, on_failure)

    def refuse(self, why: str) -> None:
        """Take no more puts."""
        self.refusal = self.refusal or why

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
                self.failure = cause
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
