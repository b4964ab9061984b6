"""The flush strategy, which decides when bytes are durable, and the outcomes that puts wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from lakelog.results import PutStatus


class Pending(Protocol):
    """A future status; ``concurrent.futures.Future[PutStatus]`` implements it."""

    def done(self) -> bool:
        """Whether the status is known."""

    def result(self, timeout: float | None = None) -> PutStatus:
        """Wait for the status, or raise its exception.

        :param timeout: in seconds; raises ``TimeoutError``
        """

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call ``fn`` with this object once the status is known, in any thread."""


Outcome: TypeAlias = "PutStatus | Pending"
"""A status that is known at once, or a future one."""


class AppendedPut(Protocol):
    """An asynchronous put whose message is in the log.

    :ivar end_offset: end of the bytes that must be durable
    :ivar deadline: for the strategy's own use
    """

    end_offset: int
    deadline: float

    def done(self) -> bool:
        """Whether it is settled."""


Settle: TypeAlias = (
    "Callable[[Sequence[Any], PutStatus | Exception, Callable[[Any], object]], object]"
)
"""Settles many :class:`AppendedPut` with one status or error, and runs their callbacks. A callback
that waits for a put in this thread first calls the third argument with it.
"""


class Flushable(Protocol):
    """The log's interface to flush strategies; thread-safe.

    The log itself is above this package, and tests of a strategy give a double
    (``lakelog_testing.FakeLog``).
    """

    @property
    def staged(self) -> bool:
        """Whether appended bytes reach the page cache only by ``commit``."""

    @property
    def appended(self) -> int:
        """End offset of the last append, in bytes from the start of the log."""

    @property
    def flushed(self) -> int:
        """End offset of the durable part of the log."""

    def commit(self) -> int:
        """Write staged bytes to the page cache; returns their end offset."""

    def sync(self) -> int:
        """Make everything appended before the call durable; return the new ``flushed``.

        The result may be lower if a signal handler calls this while its thread is about to sync.

        Raises :class:`~lakelog.errors.StoreFailed`. Bytes that were not durable by then never count
        as durable, and every waiter must fail.
        """

    def try_sync(self) -> bool:
        """Like :meth:`sync`, unless a thread of any process is syncing; returns whether it synced.

        Also returns ``True`` if there was nothing to sync. Raises
        :class:`~lakelog.errors.StoreFailed`.
        """

    def wait_flushed(self, end_offset: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        """Wait until the log is durable up to ``end_offset``; returns ``False`` on timeout.

        The calling thread syncs nothing itself, so that a sync that hangs cannot block it.

        :param ask: called if no thread is syncing; it must make another thread call
            :meth:`try_sync`, and is called again if that did not sync

        Raises :class:`~lakelog.errors.StoreFailed`.
        """


@runtime_checkable
class FlushStrategy(Protocol):
    """Decides when bytes become durable, and lets callers wait for that.

    ``submit_later(put, settle)`` may be defined, as in ``group-commit``. It registers an
    :class:`AppendedPut` that waits, without blocking, and calls :data:`Settle` once for all puts
    that are settled together. Without it, or where puts wait for copies, a thread submits
    asynchronous puts.

    ``wait(end_offset)`` may be defined, as in ``group-commit``. It returns the status of a put that
    waits, or raises its error; or it returns ``None`` without effect, and ``submit`` follows.

    ``answers_at_once = True`` may be set if ``submit`` does nothing but return ``PUT_OK``; the
    store then skips the call. The attribute is read after ``start``.

    ``waits_for_disk = True`` must be set if puts wait until they are durable. Reads then end at the
    durable end, so that no message that was read can vanish. A put that does not wait becomes
    readable with the next sync, which the strategy must trigger. Without the attribute, reads
    return everything appended.
    """

    def start(self, log: Flushable) -> None:
        """Begin; called once, before the first append."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Register an append that ended at ``end_offset``; return the outcome of its put.

        Called outside the append lock, once per put or batch. Must not wait if ``wait`` is
        ``False``.
        """

    def close(self) -> None:
        """Flush the remaining bytes, then stop; called once, after the last append.

        Also called after a ``start`` that raised, for example because no thread could be started.
        """


@runtime_checkable
class Wakeable(Protocol):
    """A flush strategy that is notified of commits of a staged writer."""

    def wake(self) -> None:
        """Check whether committed bytes are due for a flush. Must not block."""
