"""Group commit of all processes: one syncs for all that need durability, the others wait for it.

The words are in memory that all processes map, each in the machine's byte order::

    word 0  flushed    end of what a sync that returned has made durable; an offset of the log
    word 1  marked     end of what a sync is to make durable; above flushed until it has returned
    word 2  failed     not 0 once a write or sync has failed, and nothing counts as durable any more
    word 3  u32 sequence, counted up behind each sync; u32 not used

A leader that finds a mark above ``flushed`` has come after one that died, and nobody knows what its
sync gave. The kernel reports a failed write once, and then takes the pages for clean. So the leader
has all up to the mark read, checked and written again, before it syncs itself. ``tests/protocol``
walks this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from lakelog.files.pages.futex import futex
from lakelog.files.shared.byte_lock import LONGEST_SLEEP_S, ByteLock
from lakelog.runtime.yieldlock import YieldLock

BYTES: Final = 32
FLUSHED: Final = 0
MARKED: Final = 1
FAILED: Final = 2
_SEQUENCE: Final = 6
_LONGEST_NAP_S: Final = 0.05
"""A leader that dies wakes nobody, so that no sleep is longer."""
_MOST: Final = 0xFFFF_FFFF


class SyncedLog(Protocol):
    """The log as group commit sees it."""

    def end_to_sync(self) -> int:
        """End of what was appended, by all processes; the next :meth:`sync` is up to there."""

    def sync(self, start: int, end: int) -> None:
        """Make the bytes from ``start`` to ``end`` durable; raises ``OSError``."""

    def write_again(self, start: int, end: int) -> None:
        """Read the records from ``start`` to ``end``, check them, and write the same bytes.

        Raises ``OSError`` where they cannot be read or written, or are not whole.
        """


class GroupSync:
    """One process's part in it; all its threads use the same one.

    :ivar flushed: end of what is durable
    """

    def __init__(
        self,
        log: SyncedLog,
        lock: ByteLock,
        shared: memoryview,
        at: int,
        fail: Callable[[OSError | None], Exception],
    ) -> None:
        """Prepare; nothing is synced yet.

        :param lock: held by who syncs
        :param shared: memory that all processes map; :data:`BYTES` of it at ``at``, a multiple of
            8, are for this
        :param fail: makes the store fail in this process, by an error of its own or, with
            ``None``, by one in another process; the error to raise
        """
        self._log = log
        self._lock = lock
        self._words = shared[at : at + BYTES].cast("Q")
        self._halves = shared[at : at + BYTES].cast("I")
        self._futex = futex(shared, at + 4 * _SEQUENCE)
        self._fail = fail
        self._leading = YieldLock()
        self._holds = False

    @property
    def flushed(self) -> int:
        """End of what is durable."""
        return self._words[FLUSHED]

    def reach(self, end_offset: int, timeout_s: float) -> bool:
        """Wait until all before ``end_offset`` is durable, or sync it; whether it was in time.

        A sync of its own is waited for, however long it takes. In the handler of a signal that came
        while its thread locked or unlocked the byte, it is not in time. Raises what ``fail`` gives.
        """
        words, deadline = self._words, time.monotonic() + timeout_s
        while words[FLUSHED] < end_offset:
            self._check()
            if self._lead(end_offset):
                continue
            if self._leading.is_mine():  # only what the handler has interrupted could go on
                return False
            seen = self._halves[_SEQUENCE]
            if words[FLUSHED] >= end_offset or words[FAILED] or self._lead(end_offset):
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._sleep(seen, min(left, LONGEST_SLEEP_S))
        return True

    def wait(self, end_offset: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        """Wait until all before ``end_offset`` is durable; whether it was in time.

        This thread syncs nothing, so that a sync that hangs cannot hold it up.

        :param ask: has another thread call :meth:`lead`; called again where that came to nothing
        """
        words, deadline = self._words, time.monotonic() + timeout_s
        before, nap = -1, LONGEST_SLEEP_S
        while words[FLUSHED] < end_offset:
            self._check()
            seen = self._halves[_SEQUENCE]
            if seen == before:
                nap = min(2 * nap, _LONGEST_NAP_S)
            if words[FLUSHED] >= end_offset:
                break
            if seen == before or words[MARKED] <= words[FLUSHED]:  # else a sync is under way
                ask()
            before, left = seen, deadline - time.monotonic()
            if left <= 0:
                return False
            self._sleep(seen, min(left, nap))
        return True

    def lead(self, end_offset: int) -> bool:
        """Sync for all, unless somebody does so now; whether this did, or nothing was to do."""
        self._check()
        return self._words[FLUSHED] >= end_offset or self._lead(end_offset)

    def _check(self) -> None:
        if self._words[FAILED]:
            raise self._fail(None)

    def _sleep(self, seen: int, seconds: float) -> None:
        if self._futex is None or not self._futex.wait(seen, seconds):
            time.sleep(min(seconds, 50e-6))

    def _lead(self, end_offset: int) -> bool:
        """Sync for all, unless somebody does; whether to look again."""
        leading, words = self._leading, self._words
        if leading.is_mine():  # the handler of a signal puts, somewhere in here in its thread
            if self._holds:
                self._sync()
            return self._holds
        try:
            if not leading.take(False):
                return False
            if self._lock.take():
                leading.release()
                return False
            self._holds = True
            if words[FLUSHED] < end_offset and not words[FAILED]:
                self._sync()
            self._let_go()
        except BaseException:  # of a signal's handler, too, in the middle of anything
            if leading.is_mine():
                self._let_go()
            raise
        return True

    def _let_go(self) -> None:
        """Let the others see, or lead; a byte that another process has locked stays so."""
        self._holds = False
        self._lock.release()
        self._halves[_SEQUENCE] = (self._halves[_SEQUENCE] + 1) & _MOST
        self._leading.release()
        if self._futex is not None:
            self._futex.wake()

    def _sync(self) -> None:
        words, log = self._words, self._log
        start = words[FLUSHED]
        try:
            if words[MARKED] > start:
                log.write_again(start, words[MARKED])
            end = words[MARKED] = log.end_to_sync()
            log.sync(start, end)
        except OSError as error:
            words[FAILED] = 1
            raise self._fail(error) from error
        words[FLUSHED] = max(end, words[FLUSHED])
