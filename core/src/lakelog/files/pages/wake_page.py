"""The wake page ``lakelog/wake``: who waits in another process says so there, and is woken.

One page of 4,096 bytes, mapped by the owner and by those who wait; nothing of it has to last, and
it is never synced. Numbers are in the machine's own order::

    bytes  0..3    flag        not 0: somebody waits. Stored by who waits, cleared by who wakes
    bytes  4..7    sequence    the futex word; another number after each waking
    bytes  8..15   magic       MAGIC; where it is missing the page counts for nothing
    bytes 16..     zeros

Who waits for a position of the shared page, in any language:

1. read the sequence, 2. store 1 in the flag, 3. only then read the position once more, with a full
fence between (x86 may pass a load over a store), 4. if it is not there yet, call
``futex(&sequence, FUTEX_WAIT, what 1. read, 100 ms)``, not private to the process; then from 1.

Whoever appends what can be read at once, syncs, commits staged bytes, or moves ``dispatched`` looks
at the flag only, and makes no system call while it is 0; else it clears the flag, adds 1 to the
sequence, and wakes all that wait there. A waking can be lost, since flag and sequence are stored by
several and without a lock: so nobody sleeps for longer than 100 ms without a look at what it waits
for (500 ms where a while does not matter), and nothing depends on the page. One that is damaged,
missing or replaced is made anew by the owner's heartbeat. Who may not write to it polls.

Like every file that is mapped, it must not be made shorter while an owner lives.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Final

from lakelog.files.filesystem import File, FileSystem
from lakelog.files.pages.futex import Futex, futex
from lakelog.files.pages.mapped_file import Identity, identity_of, make_mapped
from lakelog.files.shared.ownership import is_published
from lakelog.format.layout import OWN_DIR

WAKE_FILE: Final = "wake"
WAKE_BYTES: Final = 4096
FLAG: Final = 0
SEQUENCE: Final = 1
MAGIC: Final = 0x6C6B_6C77_616B_0001
"""The bytes ``lklwak`` and the version, as a number."""
LONGEST_SLEEP_S: Final = 0.1
_MAGIC_BYTE: Final = 8
_MOST: Final = 0xFFFF_FFFF


def wake_path(path: Path) -> Path:
    """Where the page of the store directory ``path`` stands."""
    return path / OWN_DIR / WAKE_FILE


class WakePage:
    """A page that is mapped, for those who wake and those who wait; any thread may use it.

    :ivar asked: 32-bit words, of which the first is the flag
    """

    def __init__(self, memory: memoryview, identity: Identity | None) -> None:
        self.asked = memory.cast("I")
        self.identity = identity
        self._memory = memory
        self._magic = memory[_MAGIC_BYTE : _MAGIC_BYTE + 8].cast("Q")
        self._futex: Futex | None = None
        self._is_prepared = False
        self._fence = Lock()

    @classmethod
    def make(cls, files: FileSystem, path: Path) -> WakePage:
        """The owner's, made or taken over.

        Raises ``OSError`` where there is no room, and then leaves no new file behind.
        """
        memory = make_mapped(files, wake_path(path), WAKE_BYTES)
        page = cls(memory, identity_of(wake_path(path), WAKE_BYTES))
        page.mend()
        return page

    @classmethod
    def open(cls, files: FileSystem, path: Path) -> WakePage | None:
        """To wait at; ``None`` where none is, or none that we may write to."""
        try:
            file = files.open(wake_path(path), write=True)
        except OSError:
            return None
        try:
            page = cls._of(file) if file.size() >= WAKE_BYTES else None
        except (OSError, ValueError):
            return None
        finally:
            file.close()
        return page if page is not None and page.is_whole else None

    @classmethod
    def _of(cls, file: File) -> WakePage:
        memory = memoryview(file.map(WAKE_BYTES, writable=True)).cast("B")
        return cls(memory, identity_of(file.path, WAKE_BYTES))

    @property
    def is_whole(self) -> bool:
        """Whether its magic number is there."""
        return self._magic[0] == MAGIC

    def is_at(self, path: Path) -> bool:
        """Whether the file of the store directory ``path`` is this one, and long enough."""
        return identity_of(wake_path(path), WAKE_BYTES) == self.identity

    def mend(self) -> None:
        """Store the magic number, if it is not there."""
        if not self.is_whole:
            self._magic[0] = MAGIC

    def prepare(self) -> bool:
        """Get ready to sleep or wake; whether that can be."""
        if not self._is_prepared:
            self._futex = futex(self._memory, 4 * SEQUENCE)
            self._is_prepared = True
        return self._futex is not None

    def wake(self) -> None:
        """Wake all who wait now, if anybody does."""
        if not self.asked[FLAG]:
            return
        self.asked[FLAG] = 0
        self.rouse()

    def rouse(self) -> None:
        """Wake all who sleep, whether they said so or not."""
        self.asked[SEQUENCE] = (self.asked[SEQUENCE] + 1) & _MOST
        if self.prepare() and self._futex is not None:
            self._futex.wake()

    def ask(self) -> int:
        """Say that somebody waits; what the sequence was before."""
        seen = self.asked[SEQUENCE]
        self.asked[FLAG] = 1
        with self._fence:  # what is looked at next is looked at after the store
            return seen

    def sleep(self, seen: int, timeout_s: float, longest_s: float = LONGEST_SLEEP_S) -> bool:
        """Sleep until the sequence is not ``seen``; ``False`` where that cannot be.

        :param longest_s: how late a waking may be seen that was lost
        """
        if not self.prepare() or self._futex is None:
            return False
        return self._futex.wait(seen, min(timeout_s, longest_s))


class Sleeper:
    """Waits at the page of whoever owns a store now, if there is one to wait at."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._page: WakePage | None = None

    def ask(self) -> tuple[WakePage, int] | None:
        """Say that somebody waits; what to hand to :meth:`sleep`, after one more look.

        ``None``: poll, since nobody would wake us.
        """
        if not is_published(self._files, self._path):
            return None
        page = self._page
        if page is None or not page.is_whole or not page.is_at(self._path):
            page = self._page = WakePage.open(self._files, self._path)
        if page is None or not page.prepare():
            return None
        return page, page.ask()

    def sleep(
        self,
        asked: tuple[WakePage, int],
        timeout_s: float,
        longest_s: float = LONGEST_SLEEP_S,
    ) -> bool:
        """Sleep until somebody wakes us, ``longest_s`` at most; ``False`` where that cannot be."""
        page, seen = asked
        return page.sleep(seen, timeout_s, longest_s)

    def rouse(self) -> None:
        """Wake those who sleep here, to see what else has changed."""
        if self._page is not None:
            self._page.rouse()
