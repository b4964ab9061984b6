"""The wake page ``lakelog/wake``: waiters in other processes set a flag there and are woken.

One page of 4,096 bytes, mapped by the owner and by the waiters; it is never synced, and its
content need not survive. Numbers are in machine byte order::

    bytes  0..3    flag        not 0: a process waits. Set by waiters, cleared by wakers
    bytes  4..7    sequence    the futex word; changed by each wake-up
    bytes  8..15   magic       MAGIC; without it the page is ignored
    bytes 16..     zeros

To wait for a position of the shared page, in any language:

1. read the sequence, 2. store 1 in the flag, 3. after a full fence, read the position once more
(x86 may reorder a load before a store), 4. if the position is not reached, call
``futex(&sequence, FUTEX_WAIT, value of step 1, 100 ms)``, not process-private; then repeat.

A process that appends readable bytes, syncs, commits staged bytes, or moves ``dispatched`` checks
the flag; while it is 0, it makes no system call. Otherwise it clears the flag, adds 1 to the
sequence, and wakes all waiters.

Wake-ups can be lost, since several processes store both words without a lock. Hence a waiter
sleeps at most 100 ms (500 ms if a delay does not matter) before it reads the position again, and
correctness does not depend on the page. The owner's heartbeat replaces a damaged or missing page.
A process without write permission polls.

Like every mapped file, it must not be truncated while an owner lives.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Final

from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.processes import shared_page
from lakelog.processes.locks import futex
from lakelog.processes.ownership import is_published

WAKE_FILE: Final = "wake"
WAKE_BYTES: Final = 4096
FLAG: Final = 0
SEQUENCE: Final = 1
MAGIC: Final = 0x6C6B_6C77_616B_0001
"""The bytes ``lklwak`` and the version, as a number."""
LONGEST_SLEEP_S: Final = 0.1
_MAGIC_BYTE: Final = 8


def wake_path(path: Path) -> Path:
    """The path of the page of the store directory ``path``."""
    return path / OWN_DIR / WAKE_FILE


class WakePage:
    """A mapped wake page, for waiters and wakers; thread-safe.

    :ivar asked: 32-bit words; the first is the flag
    """

    def __init__(self, memory: memoryview, identity: shared_page.Identity | None) -> None:
        self.asked = memory.cast("I")
        self.identity = identity
        self._magic = memory[_MAGIC_BYTE : _MAGIC_BYTE + 8].cast("Q")
        self._futex = futex(memory, 4 * SEQUENCE)

    @classmethod
    def make(cls, files: FileSystem, path: Path) -> WakePage:
        """Create the owner's page, or map the existing one.

        Raises ``OSError`` if it cannot be allocated, and then leaves no new file.
        """
        memory = shared_page.make_mapped(files, wake_path(path), WAKE_BYTES)
        page = cls(memory, shared_page.identity_of(wake_path(path), WAKE_BYTES))
        page.repair()
        return page

    @classmethod
    def open(cls, files: FileSystem, path: Path) -> WakePage | None:
        """Map the page to wait at; ``None`` if it is missing or not writable."""
        target = wake_path(path)
        try:
            memory = shared_page.open_mapped(files, target, WAKE_BYTES, writable=True)
        except (OSError, ValueError):
            return None
        page = None if memory is None else cls(memory, shared_page.identity_of(target, WAKE_BYTES))
        return page if page is not None and page.is_whole else None

    @property
    def is_whole(self) -> bool:
        """Whether its magic number is present."""
        return self._magic[0] == MAGIC

    def is_at(self, path: Path) -> bool:
        """Whether this page is the current file of the store directory ``path``, in full length."""
        return shared_page.identity_of(wake_path(path), WAKE_BYTES) == self.identity

    def repair(self) -> None:
        """Store the magic number if it is missing."""
        if not self.is_whole:
            self._magic[0] = MAGIC

    def wake(self) -> None:
        """Wake all waiters if the flag is set."""
        if not self.asked[FLAG]:
            return
        self.asked[FLAG] = 0
        self.wake_all()

    def wake_all(self) -> None:
        """Wake all waiters, whether the flag is set or not."""
        self._futex.change()
        self._futex.wake()

    def ask(self) -> int:
        """Set the flag; return the sequence read before, the argument ``seen`` of :meth:`sleep`."""
        seen = self._futex.value
        self.asked[FLAG] = 1
        Lock().acquire(blocking=False)  # a fence: the caller's next read must not pass the store
        return seen

    def sleep(self, seen: int, timeout_s: float, longest_s: float = LONGEST_SLEEP_S) -> bool:
        """Sleep until the sequence differs from ``seen``; ``False`` if that is not possible.

        :param longest_s: the longest sleep, and so the longest delay after a lost wake-up
        """
        return self._futex.wait(seen, min(timeout_s, longest_s))


class PageWaiter:
    """Waits at the wake page of the store's current owner, if there is one."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._page: WakePage | None = None

    def ask(self) -> tuple[WakePage, int] | None:
        """Set the flag; return the argument of :meth:`sleep`, to be called after one more check.

        ``None`` means that no process would wake this one: the caller must poll.
        """
        if not is_published(self._files, self._path):
            return None
        page = self._page
        if page is None or not page.is_whole or not page.is_at(self._path):
            page = self._page = WakePage.open(self._files, self._path)
        return None if page is None else (page, page.ask())

    def sleep(
        self,
        asked: tuple[WakePage, int],
        timeout_s: float,
        longest_s: float = LONGEST_SLEEP_S,
    ) -> bool:
        """Sleep until woken, at most ``longest_s``; ``False`` if that is not possible."""
        page, seen = asked
        return page.sleep(seen, timeout_s, longest_s)

    def wake_all(self) -> None:
        """Wake the waiters, so that they check a condition other than a position."""
        if self._page is not None:
            self._page.wake_all()
