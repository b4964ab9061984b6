"""The critical section of appends: one thread of all processes at a time.

The order is :meth:`AppendSection.check`, :meth:`~AppendSection.enter`,
:meth:`~AppendSection.begin` with the end offset, write the bytes,
:meth:`~AppendSection.commit`, raise the queue ends, :meth:`~AppendSection.finish`,
:meth:`~AppendSection.leave`.

If a process dies in between, its intent stays in the shared page, and the next process repairs the
log. Uncommitted bytes are zeroed; for committed ones the queue ends are raised. So the log never
has a hole, and each record has both its bytes and its queue offset, or neither.

A process alone does not take the lock: it stores its number in ``APPEND_ALONE`` before an append,
checks that it is alone still, and stores 0 afterwards. A process that has joined sets ``SEVERAL``
first. Before its first append it has all processors execute a memory barrier (membarrier(2)), and
waits until that word is 0 or the number of a dead process. Either it sees the number, or the other
one sees ``SEVERAL``. So a process that does not append holds nothing that others need, whether it
runs or is stopped.

The lock has two implementations that exclude each other. Compiled code swaps a word of the shared
page from 0 to its own number, without a system call. Plain Python (:class:`AppendLock`) cannot
swap. It locks a byte, stores its number in a second word, and then waits until the first word is 0.

If compiled code finds the second word set after its swap, it swaps back. Each side stores before it
reads, so at least one sees the other, and compiled code always gives way. It also gives way if its
number is gone at a last check: plain Python stores 0 over the number of a dead process, and may
have hit a newer number. ``tests/protocol/test_append_lock`` checks all orders of these steps, and
deaths.

A number belongs to one living process, which keeps the byte ``LIFE_AT`` + number of ``lock``
locked. A waiter asks the kernel whether the holder is dead, and then clears its number. The intent
shows what the dead process left behind.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from threading import Lock
from typing import Final

from lakelog.errors import PutRefused
from lakelog.files.filesystem import File
from lakelog.processes import shared_page
from lakelog.processes.locks import (
    LONGEST_SLEEP_S,
    ByteLock,
    described,
    fence_all,
    is_locked,
    set_lock,
)
from lakelog.results import PutStatus
from lakelog.runtime.locks import YieldLock

_NUMBER_BYTES: Final = 5
_NO_FENCE: Final = (
    "the system refuses membarrier(2), but another process of this store appends without a lock: "
    "allow the call in the seccomp profile of this process"
)
_IN_A_PUT: Final = "put was called inside of a put; a signal handler cannot append to the log"


class AppendLock:
    """The lock in plain Python: not fair, not reentrant. That of compiled code has its methods.

    :ivar number: the number of this process in the shared page
    """

    def __init__(self, file: File, at: int, page: shared_page.SharedPage) -> None:
        """Prepare; only the byte of the number is locked.

        :param at: the byte of ``file``; raises ``OSError`` if it cannot be locked
        """
        self._file = file
        self._words = page.words
        self._byte = ByteLock(file, at, page.memory, shared_page.APPEND_LOCK_AT)
        self.number = int.from_bytes(os.urandom(_NUMBER_BYTES)) | 1
        set_lock(file, shared_page.LIFE_AT + self.number, fcntl.F_WRLCK)

    def take(self) -> int:
        """Try to lock; 0 on success. Otherwise call :meth:`acquire` or :meth:`release` next.

        On failure the byte may stay locked until :meth:`release`.
        """
        return self._byte.take() or self._inside()

    def _inside(self) -> int:
        """Stop further swaps; return the number of the process still inside, or 0."""
        words = self._words
        words[shared_page.APPEND_PLAIN] = self.number
        Lock().acquire(blocking=False)  # a fence: the next read must not pass the store
        return words[shared_page.APPEND_HOLDER]

    def acquire(self, timeout_s: float) -> bool:
        """Acquire the lock; on timeout return ``False`` without holding it.

        Raises ``OSError`` if the system does not support such locks.
        """
        deadline = time.monotonic() + timeout_s
        if not self._byte.acquire(timeout_s):
            return False
        seen = self._inside()
        while seen:
            sequence = self._byte.ask()
            if not self._words[shared_page.APPEND_HOLDER]:
                break
            is_late = time.monotonic() >= deadline
            if not is_late:
                self._byte.sleep(sequence, LONGEST_SLEEP_S)
            seen = self._without_dead(seen)  # also when the time is over: a dead one delays nobody
            if seen and is_late:
                self.release()
                return False
        return True

    def _without_dead(self, seen: int) -> int:
        """The holder's number; it is cleared first if it is ``seen`` and its process is dead."""
        holder = self._words[shared_page.APPEND_HOLDER]
        if holder == seen and not is_locked(self._file, shared_page.LIFE_AT + seen, fcntl.F_WRLCK):
            self._words[shared_page.APPEND_HOLDER] = holder = 0
        return holder

    def release(self) -> None:
        """Release the lock, if held, and wake one waiter."""
        if self._words[shared_page.APPEND_PLAIN] == self.number:
            self._words[shared_page.APPEND_PLAIN] = 0
        self._byte.release()


class AppendSection:
    """The append section in one process.

    :ivar is_mine: returns whether this thread is in the section
    :ivar local: the lock between the threads of this process
    :ivar is_settled: whether no other process can append alone; compiled code appends to a shared
        log only then
    """

    def __init__(
        self,
        page: shared_page.SharedPage,
        file: File,
        lock: AppendLock,
        zero: Callable[[int, int], None],
        raise_ends: Callable[[int, int], int],
        fail: Callable[[OSError | None], Exception],
        busy_timeout_ms: int,
    ) -> None:
        """Prepare; nothing is locked yet.

        ``zero`` and ``raise_ends`` repair the log after an interrupted append. Both get start and
        end offset, are idempotent, since a repair may be interrupted, and raise ``OSError``.

        :param file: the file ``lock``, opened by this process
        :param lock: the lock between processes
        :param zero: writes zeros between two offsets
        :param raise_ends: raises each queue end at least to the end of its last record between two
            offsets; returns the store time of the last record in ms since 1970, 0 without one
        :param fail: fails the store with an error of this process or, given ``None``, of another
            process; returns the exception to raise
        :param busy_timeout_ms: limit for a single append elsewhere, after which a put is refused
        """
        self._words = page.words
        self._file = file
        self._lock = lock
        self._number = lock.number
        self._zero = zero
        self._raise_ends = raise_ends
        self._fail = fail
        self._busy_seconds = busy_timeout_ms / 1000
        self._pid = os.getpid()
        self.is_settled = False
        self.local = YieldLock()
        self.is_mine = self.local.is_mine

    def check(self) -> None:
        """Raise :class:`~lakelog.errors.PutRefused` if this thread is already in the section.

        Call it outside of the ``try`` whose handler calls :meth:`leave`.
        """
        if self.is_mine():
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, _IN_A_PUT)

    def enter(self, *, at_once: bool = False) -> None:
        """Wait for the section, and repair the log if an append was interrupted.

        :param at_once: whether to wait for threads of this process only, not for other processes

        Raises :class:`~lakelog.errors.PutRefused` if another append takes too long, and the error
        that ``fail`` returns.
        """
        local, words = self.local, self._words
        try:
            if not local.take(False):
                self._wait(local.acquire)
            if not words[shared_page.SEVERAL]:
                words[shared_page.APPEND_ALONE] = self._number
            if words[shared_page.SEVERAL]:
                self._enter_shared(at_once=at_once)
            words[shared_page.APPENDER_PID] = self._pid
            if words[shared_page.FAILED]:
                raise self._fail(None)
            if words[shared_page.INTENT_END]:
                self.repair()
        except BaseException:  # including one from a signal handler, at any point
            if self.is_mine():
                self.leave()
            raise

    def _enter_shared(self, *, at_once: bool) -> None:
        words = self._words
        if words[shared_page.APPEND_ALONE] == self._number:  # another process has joined just now
            words[shared_page.APPEND_ALONE] = 0
        if not self.is_settled:
            self._settle(at_once=at_once)
        if self._lock.take():
            self._wait(self._lock.acquire, at_once=at_once)
        words[shared_page.APPENDER_SINCE] = time.monotonic_ns() // 1_000_000

    def _settle(self, *, at_once: bool) -> None:
        """Wait until a process that appended alone has left; it does not append alone again.

        The second barrier makes its appends visible here.
        """
        self._fence()
        self._wait(self._outside, at_once=at_once)
        self._fence()
        self.is_settled = True

    def _fence(self) -> None:
        if not fence_all():
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, _NO_FENCE)

    def _outside(self, timeout_s: float) -> bool:
        """Wait until no living process appends alone; ``False`` on timeout."""
        deadline = time.monotonic() + timeout_s
        while number := self._words[shared_page.APPEND_ALONE]:
            if not is_locked(self._file, shared_page.LIFE_AT + number, fcntl.F_WRLCK):
                break  # it is dead; nobody else changes the word while several processes append
            if time.monotonic() >= deadline:
                return False
            time.sleep(LONGEST_SLEEP_S)
        return True

    def begin(self, end_offset: int) -> None:
        """Note the intent to write from the end of the log up to ``end_offset``."""
        # INTENT_END is stored last: a repair runs only if it is not 0, and then needs the start.
        words = self._words
        words[shared_page.INTENT_START] = words[shared_page.APPENDED]
        words[shared_page.INTENT_END] = end_offset

    def commit(self, end_offset: int, timestamp_ms: int) -> None:
        """Move the end of the log over the written bytes.

        A reader that loads the time before the end gets the time of a record before that end.
        """
        # The end is the commit point. If the process dies before it, the bytes are zeroed; if it
        # dies after it, only the queue ends are missing.
        self._words[shared_page.APPENDED] = end_offset
        self._words[shared_page.LAST_TIMESTAMP] = timestamp_ms

    def finish(self) -> None:
        """Clear the intent: the queue ends cover the committed records."""
        self._words[shared_page.INTENT_END] = 0

    def leave(self) -> None:
        """Release the section, in any state; also after an interrupted release.

        A lock of another process is not affected.
        """
        if self._words[shared_page.APPEND_ALONE] == self._number:
            self._words[shared_page.APPEND_ALONE] = 0
        else:
            self._lock.release()
        self.local.release()

    def repair(self) -> None:
        """Undo or complete an interrupted append, in the section.

        Raises the error that ``fail`` returns; without room for zeros a later call tries again.
        """
        words = self._words
        start, end = words[shared_page.INTENT_START], words[shared_page.INTENT_END]
        appended, last_ms = words[shared_page.APPENDED], words[shared_page.LAST_TIMESTAMP]
        try:
            if appended < end:
                self._zero(appended, end)
            else:
                words[shared_page.LAST_TIMESTAMP] = max(self._raise_ends(start, end), last_ms)
        except OSError as error:
            raise self._fail(error) from error
        # Last: if this process dies in the repair, the next one repeats it.
        words[shared_page.INTENT_END] = 0

    def _wait(self, acquire: Callable[[float], bool], *, at_once: bool = False) -> None:
        """Wait for the lock; give up only if no append completes during the timeout, or at once."""
        words = self._words
        before = words[shared_page.APPENDED]
        while not acquire(0 if at_once else self._busy_seconds):
            now = words[shared_page.APPENDED]
            if at_once or now == before:
                raise PutRefused(
                    PutStatus.OS_PAGE_CACHE_BUSY,
                    f"an append of {described(words[shared_page.APPENDER_PID])} has taken more "
                    f"than {self._busy_seconds:g} s (os_page_cache_busy_timeout_ms)",
                )
            before = now
