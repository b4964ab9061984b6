"""A lock on one byte of a file, for short sections that threads of several processes take in turn.

It is an open-file-description lock (fcntl(2), ``F_OFD_SETLK``): the kernel ends it with the process
that holds it, whatever the process died of, and it needs no memory that a dead process could leave
in disorder. The lock belongs to the open file; so each process opens the file itself, and a lock in
front of this one keeps the threads of a process apart.

The calls that take it and let it go do not wait, and keep the interpreter lock: a process that gave
that up inside of the section could wait for it for milliseconds while all others wait for the
section. Whoever finds the byte taken sleeps at a word (futex(2)) that is counted up when it is free
again. A holder that dies counts nothing, so no sleep is longer than :data:`LONGEST_SLEEP_S`.
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
"""How often the byte is asked for before the first sleep: most sections are over by then."""
_MOST: Final = 0xFFFF_FFFF


class Turn:
    """A byte that is locked for work that takes a while; threads of a process take turns, too."""

    def __init__(self, file: File, at: int) -> None:
        self._file = file
        self._at = at
        self._local = Lock()

    def __enter__(self) -> None:
        """Wait for it."""
        self._local.acquire()
        try:
            while not set_lock(self._file, self._at, fcntl.F_WRLCK):
                time.sleep(_TURN_SECONDS)
        except BaseException:  # Ctrl-C too
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Let the next one have it."""
        for _try in range(2):  # once more: what stays locked holds all up
            with suppress(OSError):
                set_lock(self._file, self._at, fcntl.F_UNLCK)
                break
        self._local.release()


class ByteLock:
    """Not fair: who comes first need not be first. A thread must not take it twice.

    :ivar take: takes the lock if it is free; 0 where it did. Bound to the system's function, since
        a call through Python costs a tenth of what a short section does
    :ivar give: lets it go; to be followed by :meth:`wake` where :attr:`waited` says so
    :ivar waited: its first number is not 0 while somebody may sleep
    """

    def __init__(self, file: File, at: int, shared: memoryview, words_at: int) -> None:
        """Prepare; nothing is locked yet.

        :param at: which byte of ``file``
        :param shared: memory that all processes map; 8 bytes of it at ``words_at``, a multiple of
            4, are this lock's, and 0 at first
        """
        self._file = file
        self._at = at
        self.take, self.give, self._kept = _calls(file.fileno(), at)
        words = shared[words_at : words_at + 8].cast("I")
        self.waited = words[:1]
        self._sequence = words[1:]
        self._futex = futex(shared, words_at + 4)

    def acquire(self, timeout_s: float) -> bool:
        """Wait for the lock; ``False`` if it could not be had in time.

        Raises ``OSError`` where the system gives no such locks.
        """
        take, waited = self.take, self.waited
        for _ in range(_TRIES):
            if not take():
                return True
        if set_lock(self._file, self._at, fcntl.F_WRLCK):  # raises where there are no such locks
            return True
        deadline = time.monotonic() + timeout_s
        while True:
            seen = self.ask()
            if not take():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.sleep(seen, min(left, LONGEST_SLEEP_S))
            if not take():
                waited[0] = 1  # whoever woke us took it for all
                return True

    def ask(self) -> int:
        """Say that somebody waits; what to hand to :meth:`sleep`, after one more look."""
        seen = self._sequence[0]
        self.waited[0] = 1
        return seen

    def sleep(self, seen: int, seconds: float) -> None:
        """Sleep until one is woken, for so long at most."""
        if self._futex is None or not self._futex.wait(seen, seconds):
            time.sleep(min(seconds, 50e-6))

    def release(self) -> None:
        """Let it go, and wake one who waits."""
        self.give()
        if self.waited[0]:
            self.wake()

    def wake(self) -> None:
        """Wake one who waits; called behind :attr:`give`."""
        self.waited[0] = 0
        self._sequence[0] = (self._sequence[0] + 1) & _MOST
        if self._futex is not None:
            self._futex.wake(1)


def _calls(descriptor: int, at: int) -> tuple[Callable[[], int], Callable[[], int], object]:
    """What locks byte ``at``, what unlocks it, and the memory that both need."""
    lock, unlock = (
        FLOCK.pack(kind, os.SEEK_SET, at, 1, 0) for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
    )
    import ctypes

    call = ctypes.PyDLL(None)["fcntl"]
    kept = ctypes.create_string_buffer(lock), ctypes.create_string_buffer(unlock)
    words = ctypes.c_int(descriptor), ctypes.c_int(fcntl.F_OFD_SETLK)
    take, give = (partial(call, *words, ctypes.c_void_p(ctypes.addressof(each))) for each in kept)
    return take, give, kept
