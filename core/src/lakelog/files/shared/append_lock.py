"""The lock of the append section, by two ways that exclude each other.

Compiled code swaps a word of the shared page from 0 to its own number, without a system call. Plain
Python cannot swap: it locks a byte, stores its number in a second word, and then waits until the
first one is 0. Compiled code that finds the second word set, behind its swap, swaps back: of two
that store first and look then, one sees the other, and it is always compiled code that gives way.
So it does where its number is gone when it looks once more: plain Python, which stores 0 over the
number of a dead one, may have met the number that was swapped for that meanwhile.
``tests/protocol/test_append_lock`` walks all orders of these steps, and of deaths.

A number is a process's own as long as it lives: it keeps the byte ``LIFE_AT`` + number of ``lock``
locked if it is compiled code's, and the byte of the section if it is plain. So who waits asks the
kernel whether the other one is dead, and takes its number away. What it has left behind the intent
of the section tells.
"""

from __future__ import annotations

import fcntl
import os
import time
from threading import Lock
from typing import Final, Protocol

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


class SectionLock(Protocol):
    """Either way. Not fair: who comes first need not be first. Nobody takes it twice."""

    def take(self) -> int:
        """0 where it was free, and is taken; else :meth:`acquire` or :meth:`release` follows."""

    def acquire(self, timeout_s: float) -> bool:
        """Wait for it; ``False`` if it could not be had in time, and then it is not held."""

    def release(self) -> None:
        """Let it go, if it is held, and wake one who waits."""


class AppendLock:
    """The plain way."""

    def __init__(self, file: File, at: int, page: SharedPage) -> None:
        """Prepare; nothing is locked yet.

        :param at: which byte of ``file``
        """
        self._file = file
        self._words = page.words
        self._byte = ByteLock(file, at, page.memory, APPEND_LOCK_AT)
        self._number = int.from_bytes(os.urandom(_NUMBER_BYTES)) | 1

    def take(self) -> int:
        """See :class:`SectionLock`; a byte that is locked stays so while another one is inside."""
        if self._byte.take():
            return 1
        return self._inside()

    def _inside(self) -> int:
        """Keep those out who swap; the number of one that is inside still."""
        words = self._words
        words[APPEND_PLAIN] = self._number
        Lock().acquire(blocking=False)  # a fence: what is looked at next is so after the store
        return words[APPEND_HOLDER]

    def acquire(self, timeout_s: float) -> bool:
        """See :class:`SectionLock`.

        Raises ``OSError`` where the system gives no such locks.
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
        """Whose number is there, if it is not ``seen`` and dead."""
        holder = self._words[APPEND_HOLDER]
        if holder == seen and not is_locked(self._file, LIFE_AT + seen, fcntl.F_WRLCK):
            self._words[APPEND_HOLDER] = holder = 0
        return holder

    def release(self) -> None:
        """See :class:`SectionLock`."""
        if self._words[APPEND_PLAIN] == self._number:
            self._words[APPEND_PLAIN] = 0
        self._byte.release()
