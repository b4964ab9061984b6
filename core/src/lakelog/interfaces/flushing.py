"""The flush strategy and the replicator: what a put waits for behind its append."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from lakelog.status import PutStatus


class Pending(Protocol):
    """A status that is not known yet; a ``concurrent.futures.Future[PutStatus]`` is one."""

    def done(self) -> bool:
        """Whether it is known by now."""

    def result(self, timeout: float | None = None) -> PutStatus:
        """Wait for it, at most ``timeout`` seconds (``TimeoutError``); raises what it came to."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call ``fn`` with this object once it is known, in whatever thread that is."""


Outcome: TypeAlias = "PutStatus | Pending"
"""A status known at once, or one that a waiter will be given."""


class Flushable(Protocol):
    """The log as a flush strategy sees it; all of it may be called from any thread."""

    @property
    def staged(self) -> bool:
        """Whether ``commit`` does anything: what was appended is not in the page cache before."""

    @property
    def appended(self) -> int:
        """End of what was appended, in bytes from the start of the log."""

    @property
    def flushed(self) -> int:
        """End of what is durable."""

    def commit(self) -> int:
        """Hand staged bytes to the page cache; the end of what others see."""

    def sync(self) -> int:
        """Make durable what was appended before the call; the new ``flushed``.

        That may be less in the handler of a signal, whose thread was about to sync, too.

        Raises :class:`~lakelog.errors.StoreFailed`: what was not durable by then never counts
        as durable again, and every waiter must be failed.
        """

    def try_sync(self) -> bool:
        """As :meth:`sync`, unless a thread of any process syncs just now; whether it did.

        ``True``, too, where nothing was to do. Raises :class:`~lakelog.errors.StoreFailed`.
        """

    def wait_flushed(self, end_offset: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        """Wait until all before ``end_offset`` is durable; whether it was in time.

        The thread syncs nothing itself, so that no sync that hangs can hold it up.

        :param ask: called where nobody syncs; it has another thread call :meth:`try_sync`, and is
            called again where that came to nothing

        Raises :class:`~lakelog.errors.StoreFailed`.
        """


@runtime_checkable
class FlushStrategy(Protocol):
    """Decides when bytes become durable, and lets callers wait for it.

    One whose ``submit`` never blocks, and lets a put that waits wait for a :class:`Pending`, may
    say so with an attribute ``answers_later = True``: an asynchronous put that finds nothing under
    way is then appended by its caller, which saves a change of threads.

    One whose ``submit`` does nothing, and answers ``PUT_OK``, says so with an attribute
    ``answers_at_once = True``: it need not be called. That is looked at behind ``start``.

    One that lets puts wait until they are durable says so with an attribute
    ``waits_for_disk = True``. Reads then end at what is durable, so that nothing vanishes that
    somebody saw; a put that does not wait is seen once it was synced, which the strategy sees to.
    Without it reads see whatever was appended.
    """

    def start(self, log: Flushable) -> None:
        """Begin; called once, before the first append."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Hear of an append that ended at ``end_offset``; what its put has to wait for.

        Called outside the append lock, once per put or batch. ``wait=False`` must not wait.
        """

    def close(self) -> None:
        """Flush what is left, then stop; called once, after the last append.

        Also after a ``start`` that raised, such as for want of a thread.
        """


@runtime_checkable
class Wakeable(Protocol):
    """A flush strategy that wants to hear of commits of a staged writer."""

    def wake(self) -> None:
        """Bytes were committed: look whether they are to be flushed. Must not block."""


@runtime_checkable
class Replicator(Protocol):
    """Told of appends; lets callers wait for copies elsewhere."""

    def start(self, log: Flushable) -> None:
        """Begin; called once, before the first append."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Hear of an append that ended at ``end_offset``; what its put has to wait for."""

    def close(self) -> None:
        """Stop; called once, after the last append."""
