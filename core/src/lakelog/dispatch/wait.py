"""The dispatched offset, and waiting for it: in an owner and in a reader."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import attrs

from lakelog.dispatch.arrivals import ArrivalSignal, PolledArrivals
from lakelog.dispatch.catch_up import ReaderCatchUp
from lakelog.dispatch.runner import DispatchRunner, Lag
from lakelog.errors import DispatchStopped, StoreClosed, StoreFailed

LOOK_SECONDS = 0.01
"""Seconds between two checks of the log by a waiting reader."""


class DispatchWait(Protocol):
    """The dispatch state of a store."""

    @property
    def arrivals(self) -> ArrivalSignal:
        """Notifies of dispatched messages."""

    @property
    def offset(self) -> int:
        """Offset up to which the log is dispatched."""

    @property
    def lag(self) -> Lag:
        """The distance from the end of the log."""

    @property
    def failure(self) -> DispatchStopped | None:
        """Why dispatching has stopped, if it has."""

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Whether the log is dispatched up to ``offset`` in time."""

    def close(self) -> None:
        """Wake the threads that wait for messages."""


@attrs.frozen
class OwnedWait:
    """The dispatch state in an owner.

    :ivar commit: hands staged bytes to the page cache, for staged writers
    """

    reput: DispatchRunner
    arrivals: ArrivalSignal
    commit: Callable[[], object] | None = None

    @property
    def offset(self) -> int:
        """The offset of the dispatching thread."""
        return self.reput.offset

    @property
    def lag(self) -> Lag:
        """The lag of the dispatching thread."""
        return self.reput.lag

    @property
    def failure(self) -> DispatchStopped | None:
        """The failure of the dispatching thread."""
        return self.reput.failure

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Wait for the dispatching thread; commit staged bytes first, so that it can read on."""
        deadline = time.monotonic() + timeout_s
        if self.commit is not None and self.offset < offset:
            with suppress(StoreFailed):  # what is committed can still be dispatched
                self.commit()
        while True:
            seen = self.arrivals.version
            if self.offset >= offset:
                return True
            if self.failure is not None:
                raise self.failure
            if self.arrivals.closed:
                raise StoreClosed("the store was closed meanwhile")
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.arrivals.wait(seen, left)

    def close(self) -> None:
        """Do nothing: the dispatching thread wakes its waiters when it ends."""


@attrs.frozen
class ReaderWait:
    """The dispatch state in a reader, which dispatches on demand."""

    completion: ReaderCatchUp
    arrivals: PolledArrivals

    @property
    def offset(self) -> int:
        """The offset reached by dispatching now."""
        self.completion.refresh()
        return self.completion.offset

    @property
    def lag(self) -> Lag:
        """No lag: each query dispatches everything first."""
        return Lag(0, 0)

    @property
    def failure(self) -> DispatchStopped | None:
        """``None``: a reader's dispatchers raise from the query."""
        return None

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Check repeatedly."""
        deadline = time.monotonic() + timeout_s
        while self.offset < offset:
            if self.arrivals.closed:
                raise StoreClosed("the store was closed meanwhile")
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def close(self) -> None:
        """Wake the waiting threads, and close the files."""
        self.arrivals.close()
        self.completion.close()
