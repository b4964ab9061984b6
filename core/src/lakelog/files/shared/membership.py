"""Who has a store open for writing: each process shares byte 0 of ``lock``, as RocketMQ sees it.

RocketMQ asks for byte 0 exclusively (``DefaultMessageStore.start``), and so is refused while one of
these processes lives, and refuses them while it runs itself. Joining and leaving go one at a time,
under byte :data:`SET_UP`: a process takes its share of byte 0, and only then asks whether it could
have all of it. If so, nobody else is there, whatever the files say, and it recovers the store
before it lets others in. If not, a process lives that has joined before, and what that process
works with holds. Asked the other way round, the last process could die between the two questions,
and RocketMQ append. The kernel makes a lock another kind in one step, with nobody in between.

``tests/protocol/joining.py`` walks this with deaths at every step.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import StoreError, StoreLocked
from lakelog.files.filesystem import File, FileSystem
from lakelog.files.pages.shared_page import SharedPage
from lakelog.files.shared.ofd_lock import set_lock, unlock_all
from lakelog.files.shared.ownership import CLOSE_IT, SERVICES, closed_to_all, is_published, locked
from lakelog.format.layout import LOCK_CONTENT, LOCK_FILE
from lakelog.runtime.forks import tell_of_forks

OPEN: Final = 0
FOLLOWED: Final = 1
"""The byte that is locked while queues follow the log."""
PUBLISHED: Final = 2
"""The byte that all share for whom the shared page is right."""
SET_UP: Final = 5
LEAVE_SECONDS: Final = 60.0
ALONE: Final = "alone"
"""The key in the shared page of why a process lets nobody in."""
_LOOK_SECONDS: Final = 0.002
_LONGEST_LOOK_SECONDS: Final = 0.05
"""Hundreds may wait, and must leave the processors to those whom they wait for."""


@attrs.define(eq=False)
class Membership:
    """The share of one process in one store; it ends with the process.

    :ivar is_alone: whether no other process had the store open when this was asked; no other one
        joins until :meth:`let_in`
    :ivar is_parting: whether it has begun to leave
    """

    path: Path
    is_alone: bool
    _file: File
    is_parting: bool = attrs.field(default=False, init=False)
    _is_open: bool = attrs.field(default=True, init=False)

    @classmethod
    def join(cls, files: FileSystem, path: Path, timeout_s: float) -> Membership:
        """Take a share; nobody joins or leaves until :meth:`let_in`.

        :param timeout_s: how long others may take to join or leave, the recovery of one included

        Raises :class:`~lakelog.errors.StoreLocked` where another program has the store, or
        somebody takes too long.
        """
        membership = cls(path, False, files.open(path / LOCK_FILE, write=True, create=True))
        tell_of_forks(membership)
        try:
            membership._begin(timeout_s)
            if not membership._set(OPEN, fcntl.F_RDLCK):
                raise _taken(files, path)
            membership.is_alone = membership._set(OPEN, fcntl.F_WRLCK)
            if membership.is_alone and membership._file.size() == 0:
                membership._file.write_at(0, LOCK_CONTENT)
        except BaseException:  # Ctrl-C too
            membership.forked()
            raise
        return membership

    @classmethod
    def alone(
        cls, files: FileSystem, path: Path, timeout_s: float = 1.0, why: str | None = None
    ) -> Membership:
        """Have the store for oneself; nobody joins until :meth:`let_in`.

        :param why: this process lets nobody in; it is told where somebody else is

        Raises :class:`~lakelog.errors.StoreLocked` where anybody else has it open.
        """
        membership = cls.join(files, path, timeout_s)
        if not membership.is_alone:
            membership.leave()
            raise locked(files, path, why and f", and {why}{CLOSE_IT}")
        return membership

    @property
    def file(self) -> File:
        """The file ``lock``, on whose other bytes this process may take locks of its own."""
        return self._file

    def _set(self, at: int, kind: int) -> bool:
        return set_lock(self._file, at, kind)

    def _begin(self, timeout_s: float) -> None:
        end, look_s = time.monotonic() + timeout_s, _LOOK_SECONDS
        while not self._set(SET_UP, fcntl.F_WRLCK):
            if time.monotonic() >= end:
                raise StoreLocked(
                    f"another process has been opening or closing this store for {timeout_s:g} s: "
                    "it recovers, or hangs; wait, or end it",
                    path=self.path,
                )
            time.sleep(look_s)
            look_s = min(2 * look_s, _LONGEST_LOOK_SECONDS)

    def let_in(self, *, share: bool = True) -> None:
        """Let others join and leave: what they need is there by now.

        :param share: whether they may have the store open beside this process
        """
        if share:
            self._set(OPEN, fcntl.F_RDLCK)
            self.is_alone = False
        self._set(SET_UP, fcntl.F_UNLCK)

    def publish(self) -> None:
        """Let readers know that the shared page is right."""
        self._set(PUBLISHED, fcntl.F_RDLCK)

    def take_services(self) -> bool:
        """Become the one who dispatches, deletes and writes the checkpoint; whether nobody is."""
        return self._set(SERVICES, fcntl.F_WRLCK)

    def drop_services(self) -> None:
        """Let another process have them."""
        self._set(FOLLOWED, fcntl.F_UNLCK)
        self._set(SERVICES, fcntl.F_UNLCK)

    def tell_followed(self, yes: bool = True) -> None:
        """Let readers know that queues were complete, and follow the log from now on; or not."""
        self._set(FOLLOWED, fcntl.F_WRLCK if yes else fcntl.F_UNLCK)

    def if_alone(self, action: Callable[[], None]) -> None:
        """Call ``action`` while nobody else has the store open, or joins; else do nothing."""
        if self._set(SET_UP, fcntl.F_WRLCK):
            try:
                if self._set(OPEN, fcntl.F_WRLCK):
                    action()
                    self._set(OPEN, fcntl.F_RDLCK)
            finally:
                self._set(SET_UP, fcntl.F_UNLCK)

    def part(self, timeout_s: float) -> bool:
        """Begin to leave: nobody joins or leaves until :meth:`leave`.

        :returns: whether nobody else has the store open, so that this process is to close it

        Raises :class:`~lakelog.errors.StoreLocked` where somebody takes too long.
        """
        self.is_alone = False
        self._begin(timeout_s)
        self.is_parting, self.is_alone = True, self._set(OPEN, fcntl.F_WRLCK)
        return self.is_alone

    def leave(self) -> None:
        """Give the share back; nothing happens if that was done."""
        if self._is_open:
            with suppress(OSError):  # a child that is just beginning may have the file open, too
                unlock_all(self._file)
            self.forked()

    def forked(self) -> None:
        """Let go in a forked child: the share is its parent's, and must end with that."""
        if self._is_open:
            self._is_open = False
            self._file.close()


def _taken(files: FileSystem, path: Path) -> StoreLocked:
    """Nobody opens or closes it now, so that the page is of who has it, if that is lakelog."""
    why = None
    if is_published(files, path):
        with suppress(StoreError, OSError):
            why = SharedPage.join(files, path).settings.get(ALONE)
    return closed_to_all(files, path, why)


def alone(files: FileSystem, path: Path) -> Membership:
    """Have a store to oneself that is not opened; raises as :meth:`Membership.alone`."""
    found = Membership.alone(files, path)
    found.let_in(share=False)
    return found
