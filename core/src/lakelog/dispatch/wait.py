"""How far queues and index have come, and waiting for it: for an owner, and for a reader."""

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
"""How often a reader looks at the log for what it waits for."""


class DispatchWait(Protocol):
    """What a store says of its dispatchers."""

    @property
    def arrivals(self) -> ArrivalSignal:
        """What tells of messages that were dispatched."""

    @property
    def offset(self) -> int:
        """Everything before it was dispatched."""

    @property
    def lag(self) -> Lag:
        """How far that is behind the log."""

    @property
    def failure(self) -> DispatchStopped | None:
        """Why they stand still."""

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Whether everything before ``offset`` was dispatched in time."""

    def close(self) -> None:
        """Wake those who wait for messages."""


@attrs.frozen
class OwnedWait:
    """The owner's thread tells when it gets on.

    :ivar commit: hands staged bytes to the page cache, where a writer keeps some
    """

    reput: DispatchRunner
    arrivals: ArrivalSignal
    commit: Callable[[], object] | None = None

    @property
    def offset(self) -> int:
        """As far as the thread has come."""
        return self.reput.offset

    @property
    def lag(self) -> Lag:
        """Counted by the thread."""
        return self.reput.lag

    @property
    def failure(self) -> DispatchStopped | None:
        """Kept by the thread."""
        return self.reput.failure

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Sleep until the thread tells; what is staged is committed, or it could not get on."""
        deadline = time.monotonic() + timeout_s
        if self.commit is not None and self.offset < offset:
            with suppress(StoreFailed):  # what is committed can be read on
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
        """Who dispatches wakes everybody who waits for that when it ends."""


@attrs.frozen
class ReaderWait:
    """A reader looks for itself."""

    completion: ReaderCatchUp
    arrivals: PolledArrivals

    @property
    def offset(self) -> int:
        """As far as it can read now."""
        self.completion.refresh()
        return self.completion.offset

    @property
    def lag(self) -> Lag:
        """It reads all that there is whenever it is asked."""
        return Lag(0, 0)

    @property
    def failure(self) -> DispatchStopped | None:
        """A reader's dispatchers raise where they are asked."""
        return None

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Look again and again."""
        deadline = time.monotonic() + timeout_s
        while self.offset < offset:
            if self.arrivals.closed:
                raise StoreClosed("the store was closed meanwhile")
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def close(self) -> None:
        """Wake those who wait, whom nobody else would, and let go of files."""
        self.arrivals.close()
        self.completion.close()
