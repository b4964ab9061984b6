"""A lock on one byte of a file, for short sections shared by threads of several processes.

It is an open-file-description lock (fcntl(2), ``F_OFD_SETLK``): the kernel releases it when the
holder dies, and it needs no shared memory that a dead process could corrupt. The lock belongs to
the open file. So each process opens the file itself, and a local lock separates its threads.

The lock and unlock calls do not block, and keep the interpreter lock. Releasing it inside the
section could cost milliseconds to get it back, while all other processes wait. A waiter sleeps at a
futex word, which is incremented on release. A dead holder does not increment it, so no sleep is
longer than :data:`LONGEST_SLEEP_S`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Final

from lakelog.files.filesystem import File
from lakelog.files.pages.futex import futex
from lakelog.files.shared.ofd_lock import FLOCK, set_lock

LONGEST_SLEEP_S: Final = 0.002
_TURN_SECONDS: Final = 0.001
_TRIES: Final = 5
"""Attempts before the first sleep: most sections are over by then."""
_MOST: Final = 0xFFFF_FFFF


class ProcessLock:
    """A byte lock for longer work, with a local lock between the threads of a process."""

    def __init__(self, file: File, at: int) -> None:
        self._file = file
        self._at = at
        self._local = Lock()

    def __enter__(self) -> None:
        """Acquire it."""
        self._local.acquire()
        try:
            while not set_lock(self._file, self._at, fcntl.F_WRLCK):
                time.sleep(_TURN_SECONDS)
        except BaseException:  # Ctrl-C too
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Release it."""
        for _try in range(2):  # retry: a byte that stays locked blocks all processes
            with suppress(OSError):
                set_lock(self._file, self._at, fcntl.F_UNLCK)
                break
        self._local.release()


class ByteLock:
    """The lock. Not fair and not reentrant.

    :ivar take: tries to lock; 0 on success. Bound to the system's function, since a Python frame
        costs a tenth of a short section
    :ivar give: unlocks; call :meth:`wake` afterwards if :attr:`waited` is set
    :ivar waited: the first number is not 0 while a thread may sleep
    """

    def __init__(self, file: File, at: int, shared: memoryview, words_at: int) -> None:
        """Prepare; nothing is locked yet.

        :param file: opened by this process itself, for writing
        :param at: the position of the byte in ``file``
        :param shared: memory mapped by all processes; the 8 bytes at ``words_at``, a multiple of 4,
            belong to this lock and are 0 at first
        """
        self._file = file
        self._at = at
        self.take, self.give, self._kept = _calls(file.fileno(), at)
        words = shared[words_at : words_at + 8].cast("I")
        self.waited = words[:1]
        self._sequence = words[1:]
        self._futex = futex(shared, words_at + 4)

    def acquire(self, timeout_s: float) -> bool:
        """Acquire the lock; ``False`` on timeout.

        Raises ``OSError`` if the system does not support such locks.
        """
        take, waited = self.take, self.waited
        for _ in range(_TRIES):
            if not take():
                return True
        if set_lock(self._file, self._at, fcntl.F_WRLCK):  # raises if not supported
            return True
        deadline = time.monotonic() + timeout_s
        while True:
            seen = self.ask()
            if not take():
                return True
            if (left := deadline - time.monotonic()) <= 0:
                return False
            self.sleep(seen, min(left, LONGEST_SLEEP_S))
            if not take():
                waited[0] = 1  # the wake-up cleared the flag, and others may still sleep
                return True

    def ask(self) -> int:
        """Set the waiting flag; return the argument ``seen`` of :meth:`sleep`.

        The caller tries once more to lock before it sleeps.
        """
        seen = self._sequence[0]
        self.waited[0] = 1
        return seen

    def sleep(self, seen: int, seconds: float) -> None:
        """Sleep until woken, at most ``seconds``."""
        self._futex.sleep(seen, seconds)

    def release(self) -> None:
        """Release the lock, and wake one waiter."""
        self.give()
        if self.waited[0]:
            self.wake()

    def wake(self) -> None:
        """Wake one waiter; called after :attr:`give`."""
        self.waited[0] = 0
        self._sequence[0] = (self._sequence[0] + 1) & _MOST
        self._futex.wake(1)


def _calls(descriptor: int, at: int) -> tuple[Callable[[], int], Callable[[], int], object]:
    """Functions that lock and unlock byte ``at``, and the memory that they use."""
    lock, unlock = (
        FLOCK.pack(kind, os.SEEK_SET, at, 1, 0) for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
    )
    import ctypes

    call = ctypes.PyDLL(None)["fcntl"]
    kept = ctypes.create_string_buffer(lock), ctypes.create_string_buffer(unlock)
    words = ctypes.c_int(descriptor), ctypes.c_int(fcntl.F_OFD_SETLK)
    take, give = (partial(call, *words, ctypes.c_void_p(ctypes.addressof(each))) for each in kept)
    return take, give, kept
