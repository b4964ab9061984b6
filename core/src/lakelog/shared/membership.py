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
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import StoreLocked
from lakelog.files import File, FileSystem
from lakelog.forks import tell_of_forks
from lakelog.layout import LOCK_CONTENT, LOCK_FILE
from lakelog.ownership import owner_pid
from lakelog.shared.bytelock import set_lock

OPEN: Final = 0
SET_UP: Final = 5
_LOOK_SECONDS: Final = 0.002


@attrs.define(eq=False)
class Membership:
    """The share of one process in one store; it ends with the process.

    :ivar is_alone: whether no other process had the store open when this was asked; no other one
        joins until :meth:`let_in`
    """

    path: Path
    is_alone: bool
    _file: File
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

    @property
    def file(self) -> File:
        """The file ``lock``, on whose other bytes this process may take locks of its own."""
        return self._file

    def _set(self, at: int, kind: int) -> bool:
        return set_lock(self._file, at, kind)

    def _begin(self, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not self._set(SET_UP, fcntl.F_WRLCK):
            if time.monotonic() >= end:
                raise StoreLocked(
                    f"another process has been opening or closing this store for {timeout_s:g} s: "
                    "it recovers, or hangs; wait, or end it",
                    path=self.path,
                )
            time.sleep(_LOOK_SECONDS)

    def let_in(self) -> None:
        """Let others join and leave: what they need is there by now."""
        if self.is_alone:
            self._set(OPEN, fcntl.F_RDLCK)
            self.is_alone = False
        self._set(SET_UP, fcntl.F_UNLCK)

    def part(self, timeout_s: float) -> bool:
        """Begin to leave: nobody joins or leaves until :meth:`leave`.

        :returns: whether nobody else has the store open, so that this process is to close it

        Raises :class:`~lakelog.errors.StoreLocked` where somebody takes too long.
        """
        self._begin(timeout_s)
        self.is_alone = self._set(OPEN, fcntl.F_WRLCK)
        return self.is_alone

    def leave(self) -> None:
        """Give the share back; nothing happens if that was done."""
        if self._is_open:
            for at in (OPEN, SET_UP):  # a child that is just beginning may have the file open, too
                with suppress(OSError):
                    self._set(at, fcntl.F_UNLCK)
            self.forked()

    def forked(self) -> None:
        """Let go in a forked child: the share is its parent's, and must end with that."""
        if self._is_open:
            self._is_open = False
            self._file.close()


def _taken(files: FileSystem, path: Path) -> StoreLocked:
    pid = owner_pid(files, path)
    who = f"process {pid}" if pid else "another program"
    return StoreLocked(
        f"{who} has this store for itself: RocketMQ, or a store that was opened as exclusive; "
        "close it there, or open it here with mode='read'",
        path=path,
        owner_pid=pid,
    )
