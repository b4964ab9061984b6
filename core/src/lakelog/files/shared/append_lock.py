"""The lock of the append section, in two implementations that exclude each other.

Compiled code swaps a word of the shared page from 0 to its own number, without a system call. Plain
Python cannot swap. It locks a byte, stores its number in a second word, and then waits until the
first word is 0.

If compiled code finds the second word set after its swap, it swaps back. Each side stores before it
reads, so at least one sees the other, and compiled code always gives way. It also gives way if its
number is gone at a last check: plain Python stores 0 over the number of a dead process, and may
have hit a newer number. ``tests/protocol/test_append_lock`` checks all orders of these steps, and
deaths.

A number belongs to one living process. Compiled code keeps the byte ``LIFE_AT`` + number of
``lock`` locked; plain Python keeps the byte of the section locked. A waiter asks the kernel whether
the holder is dead, and then clears its number. The intent of the section shows what the dead
process left behind.
"""

from __future__ import annotations

import fcntl
import os
import time
from threading import Lock
from typing import Final

from lakelog.files.filesystem import File
from lakelog.files.pages.shared_page import (
    APPEND_HOLDER,
    APPEND_LOCK_AT,
    APPEND_PLAIN,
    LIFE_AT,
    SharedPage,
)
from lakelog.files.shared.byte_lock import LONGEST_SLEEP_S, ByteLock
from lakelog.files.shared.ofd_lock import is_locked

_NUMBER_BYTES: Final = 5


class AppendLock:
    """The implementation in plain Python."""

    def __init__(self, file: File, at: int, page: SharedPage) -> None:
        """Prepare; nothing is locked yet.

        :param at: the byte of ``file``
        """
        self._file = file
        self._words = page.words
        self._byte = ByteLock(file, at, page.memory, APPEND_LOCK_AT)
        self._number = int.from_bytes(os.urandom(_NUMBER_BYTES)) | 1

    def take(self) -> int:
        """See :class:`~lakelog_interfaces.accelerate.SectionLock`.

        On failure the byte may stay locked until :meth:`release`.
        """
        if self._byte.take():
            return 1
        return self._inside()

    def _inside(self) -> int:
        """Stop further swaps; return the number of the process still inside, or 0."""
        words = self._words
        words[APPEND_PLAIN] = self._number
        Lock().acquire(blocking=False)  # a fence: the next read must not pass the store
        return words[APPEND_HOLDER]

    def acquire(self, timeout_s: float) -> bool:
        """See :class:`~lakelog_interfaces.accelerate.SectionLock`.

        Raises ``OSError`` if the system does not support such locks.
        """
        deadline = time.monotonic() + timeout_s
        if not self._byte.acquire(timeout_s):
            return False
        seen = self._inside()
        while seen:
            sequence = self._byte.ask()
            if not self._words[APPEND_HOLDER]:
                break
            if time.monotonic() >= deadline:
                self.release()
                return False
            self._byte.sleep(sequence, LONGEST_SLEEP_S)
            seen = self._without_dead(seen)
        return True

    def _without_dead(self, seen: int) -> int:
        """The holder's number; it is cleared first if it is ``seen`` and its process is dead."""
        holder = self._words[APPEND_HOLDER]
        if holder == seen and not is_locked(self._file, LIFE_AT + seen, fcntl.F_WRLCK):
            self._words[APPEND_HOLDER] = holder = 0
        return holder

    def release(self) -> None:
        """See :class:`~lakelog_interfaces.accelerate.SectionLock`."""
        if self._words[APPEND_PLAIN] == self._number:
            self._words[APPEND_PLAIN] = 0
        self._byte.release()
