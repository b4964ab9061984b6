"""Waiting for durability across processes: group commit, and the end that copies have.

Group commit: one process syncs for all that need it. The words are in memory mapped by all
processes, in machine byte order::

    word 0  flushed    end of the bytes that a completed sync has made durable; an offset of the log
    word 1  marked     end of the bytes of the current sync; above flushed until it has returned
    word 2  failed     not 0 once a write or sync has failed; nothing more becomes durable then
    word 3  u32 sequence, incremented after each sync; u32 not used

If a leader finds ``marked`` above ``flushed``, the previous leader died in a sync with unknown
outcome. The kernel reports a failed write once, and then treats the pages as clean. So the leader
reads and checks everything up to the mark, writes it again, and only then syncs.
``tests/protocol`` checks this.

Copies: the process with the services sends the log to copies and stores the words; puts of all
processes wait for them::

    word 0  copied     end of the bytes that enough copies have acknowledged; never decreases
    word 1  reachable  1 + the end that enough of the connected copies have; 0: too few are
                       connected
    word 2  u32 sequence, changed after each store of the others; u32 not used
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from lakelog.errors import NotOpened
from lakelog.processes.locks import LONGEST_SLEEP_S, ByteLock, Holder, futex
from lakelog.runtime.locks import YieldLock

BYTES: Final = 32
FLUSHED: Final = 0
MARKED: Final = 1
FAILED: Final = 2
_SEQUENCE_AT: Final = 24
_COPIED_BYTES: Final = 24
_COPIED: Final = 0
_REACHABLE: Final = 1
_COPIED_SEQUENCE_AT: Final = 16
_POLL_S: Final = 0.001
_LONGEST_NAP_S: Final = 0.05
"""The longest sleep, since a leader that dies does not wake the waiters."""


class GroupSync:
    """Group commit in one process, shared by its threads.

    :ivar flushed: the durable end
    """

    def __init__(
        self,
        end_to_sync: Callable[[], int],
        sync: Callable[[int, int], object],
        write_again: Callable[[int, int], object],
        lock: ByteLock,
        shared: memoryview,
        at: int,
        fail: Callable[[OSError | None], Exception],
    ) -> None:
        """Prepare; nothing is synced yet.

        :param end_to_sync: returns the end of the bytes appended by all processes; the next
            ``sync`` goes up to it
        :param sync: makes the bytes from one offset of the log to another durable, or raises
            ``OSError``
        :param write_again: reads these bytes, checks the records, and writes the same bytes again,
            as after a lost write; raises ``OSError``
        :param lock: held by the syncing process
        :param shared: memory mapped by all processes; :data:`BYTES` of it at ``at``, a multiple of
            8, belong to this object
        :param fail: fails the store with an error of this process or, given ``None``, of another
            process; returns the exception to raise
        """
        self._end_to_sync = end_to_sync
        self._sync_bytes = sync
        self._write_again = write_again
        self._lock = lock
        self._words = shared[at : at + BYTES].cast("Q")
        self._futex = futex(shared, at + _SEQUENCE_AT)
        self._fail = fail
        self._holder: Holder | None = None
        self._seen = 0
        self._leading = YieldLock()
        self._holds = False

    @property
    def flushed(self) -> int:
        """The durable end."""
        return self._words[FLUSHED]

    def reach(self, end_offset: int, timeout_s: float) -> bool:
        """Wait until the log is durable up to ``end_offset``; sync if needed; ``False`` on timeout.

        A sync by this thread is not limited by the timeout. The result is also ``False`` in a
        signal handler that interrupted this thread in locking or unlocking. Raises the error that
        ``fail`` returns.
        """
        words, deadline = self._words, time.monotonic() + timeout_s
        while words[FLUSHED] < end_offset:
            self._check()
            if self._lead(end_offset):
                continue
            if self._leading.is_mine():  # a signal handler: it cannot wait for itself
                return False
            seen = self._futex.value
            if words[FLUSHED] >= end_offset or words[FAILED] or self._lead(end_offset):
                continue
            if (left := deadline - time.monotonic()) <= 0:
                return False
            self._futex.sleep(seen, min(left, LONGEST_SLEEP_S))
        return True

    def wait(self, end_offset: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        """Wait until other threads have synced up to ``end_offset``; ``False`` on timeout.

        This thread never syncs, so that a hanging sync cannot block it beyond the timeout.

        :param ask: has another thread call :meth:`lead`; called again if that had no effect

        Raises the error that ``fail`` returns.
        """
        words, deadline = self._words, time.monotonic() + timeout_s
        before, nap = -1, LONGEST_SLEEP_S
        while words[FLUSHED] < end_offset:
            self._check()
            seen = self._futex.value
            if seen == before:
                nap = min(2 * nap, _LONGEST_NAP_S)
            if words[FLUSHED] >= end_offset:
                break
            # An unchanged sequence means that no sync has ended since the last check. The leader
            # may have died, so another sync is requested. The sleeps grow, since a slow sync may
            # still be running.
            if seen == before or words[MARKED] <= words[FLUSHED]:  # no sync seems to be running
                ask()
            before, left = seen, deadline - time.monotonic()
            if left <= 0:
                return False
            self._futex.sleep(seen, min(left, nap))
        return True

    def lead(self, end_offset: int) -> bool:
        """Sync for all unless another sync is running; ``True`` if done or not needed.

        Raises the error that ``fail`` returns.
        """
        self._check()
        return self._words[FLUSHED] >= end_offset or self._lead(end_offset)

    def _check(self) -> None:
        if self._words[FAILED]:
            raise self._fail(None)

    def _lead(self, end_offset: int) -> bool:
        """Sync for all unless another sync is running; return whether to check again."""
        leading = self._leading
        if leading.is_mine():  # a put in a signal handler that interrupted this thread in here
            if self._holds:
                self._sync()
            return self._holds
        try:
            return self._take_and_sync(end_offset)
        except BaseException:  # including one from a signal handler, at any point
            try:
                if leading.is_mine():
                    self._let_go()
            finally:
                if leading.is_mine():  # a signal handler has raised while an error was handled
                    self._let_go()
            raise

    def _take_and_sync(self, end_offset: int) -> bool:
        """Sync unless another thread or process does; the caller releases after an exception.

        A function of its own: CPython 3.14 leaves the instruction behind a branch out of the
        ``try`` around it, so an exception of a tracer there would pass by a handler in here.
        """
        leading, words = self._leading, self._words
        if not leading.take(False):
            return False
        if self._lock.take() and not self._is_stopped():
            leading.release()
            return False
        self._holds = True
        if words[FLUSHED] < end_offset and not words[FAILED]:
            self._sync()
        self._let_go()
        return True

    def _is_stopped(self) -> bool:
        """Whether the syncing process is stopped: then this one syncs beside it.

        The bytes of the mark are written and synced again. The stopped process repeats the end of
        its sync when it continues, which moves the durable end no further.
        """
        seen = self._futex.value
        holder = self._holder
        if holder is None or (seen != self._seen and holder.stopped_pid is None):
            self._holder, self._seen = self._lock.holder(), seen
            return False  # syncs end
        return holder.is_stopped()

    def _let_go(self) -> None:
        """Release and wake the waiters; the byte is not unlocked if another process holds it."""
        self._holds = False
        self._lock.release()
        self._futex.change()
        self._leading.release()
        self._futex.wake()

    def _sync(self) -> None:
        words = self._words
        start = words[FLUSHED]
        # The mark is stored before the sync, and flushed after it. A process that dies in between
        # leaves mark > flushed, which makes the next leader write these bytes again.
        try:
            if words[MARKED] > start:
                self._write_again(start, words[MARKED])
            end = words[MARKED] = self._end_to_sync()
            self._sync_bytes(start, end)
        except NotOpened:  # no sync was tried
            raise
        except OSError as error:
            words[FAILED] = 1
            raise self._fail(error) from error
        words[FLUSHED] = max(end, words[FLUSHED])


class CopiedEnd:
    """The words in one process. Any thread may wait; only one process may publish."""

    def __init__(self, shared: memoryview, at: int) -> None:
        """Use the 24 bytes of ``shared`` at ``at``, a multiple of 8."""
        self._words = shared[at : at + _COPIED_BYTES].cast("Q")
        self._futex = futex(shared, at + _COPIED_SEQUENCE_AT)

    @property
    def end(self) -> int:
        """End offset of the bytes that enough copies have acknowledged."""
        return self._words[_COPIED]

    @property
    def reachable_end(self) -> int:
        """The end offset that enough of the connected copies have; -1 if too few are connected."""
        return self._words[_REACHABLE] - 1

    def publish(self, reachable_end: int) -> None:
        """Store the end offset that enough of the connected copies have, and wake the waiters.

        :param reachable_end: -1 if too few copies are connected
        """
        words = self._words
        words[_COPIED] = max(words[_COPIED], reachable_end)
        words[_REACHABLE] = reachable_end + 1
        self._futex.change()
        self._futex.wake()

    def wait(self, end_offset: int, timeout_s: float) -> bool:
        """Wait until enough copies have the log up to ``end_offset``; ``False`` on timeout."""
        deadline = time.monotonic() + timeout_s
        while self._words[_COPIED] < end_offset:
            seen = self._futex.value
            if self._words[_COPIED] >= end_offset:
                break
            if (left := deadline - time.monotonic()) <= 0:
                return False
            if not self._futex.wait(seen, min(left, _LONGEST_NAP_S)):
                time.sleep(min(left, _POLL_S))
        return True
