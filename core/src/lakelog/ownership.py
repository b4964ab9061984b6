"""Who owns a store directory: the lock on ``lock``, and the ``abort`` file while a store runs.

The lock is an open-file-description lock on byte 0: POSIX lockers, Java's included, see it; a
second open in the same process is refused; and closing another descriptor of the file does not
release it. A forked child would hold it with its parent, so it closes its copy of the descriptor;
an owner that ends unlocks before it closes, and need not wait for a child that is just beginning.
RocketMQ takes ``abort`` for the sign of an unclean stop; it holds the owner's pid.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Final

import attrs

from lakelog.errors import StoreLocked
from lakelog.files import File, FileSystem, overwrite_file, read_file, told
from lakelog.forks import tell_of_forks
from lakelog.layout import ABORT_BACKUP_FILE, ABORT_FILE, LOCK_CONTENT, LOCK_FILE

_FLOCK: Final = Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


_OWNED: Final = 0
_FOLLOWED: Final = 1
"""The byte of ``lock`` that is locked once queues follow the log; RocketMQ has none."""
_PUBLISHED: Final = 2
"""The byte that is locked while the owner keeps the positions page; RocketMQ has none."""
_ATTENDED: Final = 4
"""The byte that is locked while the owner lets others attach, or will once it has recovered."""


def _bytes(at: int, kind: int, count: int = 1) -> bytes:
    """:param count: of bytes from ``at`` on; 0 is for all there are"""
    return _FLOCK.pack(kind, os.SEEK_SET, at, count, 0)


@attrs.define(eq=False)
class OwnerLock:
    """The lock of one owner; gone when it is released or the process ends."""

    _file: File
    _is_open: bool = attrs.field(default=True, init=False)

    @classmethod
    def take(cls, files: FileSystem, path: Path) -> OwnerLock:
        """Lock the store directory ``path``; raises :class:`~lakelog.errors.StoreLocked`."""
        file = files.open(path / LOCK_FILE, write=True, create=True)
        lock = cls(file)
        tell_of_forks(lock)
        try:
            lock._tell(_OWNED)
            if file.size() == 0:
                file.write_at(0, LOCK_CONTENT)
        except OSError as error:
            lock.release()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise locked(files, path) from None
            raise
        return lock

    @property
    def file(self) -> File:
        """The file ``lock``, on whose other bytes this process may take locks of its own."""
        return self._file

    def tell_attended(self) -> None:
        """Let others know that they can attach now, or soon."""
        self._tell(_ATTENDED)

    def tell_unattended(self) -> None:
        """Let others know that nobody can attach after all."""
        self._tell(_ATTENDED, fcntl.F_UNLCK)

    def tell_followed(self, yes: bool = True) -> None:
        """Let readers know that queues were complete, and follow the log from now on; or not."""
        self._tell(_FOLLOWED, fcntl.F_WRLCK if yes else fcntl.F_UNLCK)

    def tell_published(self) -> None:
        """Let readers know that the positions page is this owner's, for as long as it lives."""
        self._tell(_PUBLISHED)

    def _tell(self, at: int, kind: int = fcntl.F_WRLCK) -> None:
        try:
            fcntl.fcntl(self._file.fileno(), fcntl.F_OFD_SETLK, _bytes(at, kind))
        except OSError as error:
            raise told(error, "lock", self._file.path) from None

    def release(self) -> None:
        """Let another process own the store; nothing happens if that was done."""
        if self._is_open:
            with suppress(OSError):  # to close it lets go, too
                fcntl.fcntl(self._file.fileno(), fcntl.F_OFD_SETLK, _bytes(0, fcntl.F_UNLCK, 0))
            self.forked()

    def forked(self) -> None:
        """Let go in a child of the owner: the lock is the owner's alone, and must end with it."""
        if self._is_open:
            self._is_open = False
            self._file.close()


def is_owned(files: FileSystem, path: Path) -> bool:
    """Whether somebody owns the store directory ``path`` now; changes nothing."""
    return _is_locked(files, path, _OWNED)


def is_followed(files: FileSystem, path: Path) -> bool:
    """Whether a living owner said that its queues follow its log; changes nothing.

    It does not say so while it completes what a crash left, and RocketMQ never does.
    """
    return _is_locked(files, path, _FOLLOWED)


def is_published(files: FileSystem, path: Path) -> bool:
    """Whether a living owner keeps the positions page; changes nothing. RocketMQ never does."""
    return _is_locked(files, path, _PUBLISHED)


def is_attended(files: FileSystem, path: Path) -> bool:
    """Whether a living owner lets others attach, or will once it has recovered."""
    return _is_locked(files, path, _ATTENDED)


def _is_locked(files: FileSystem, path: Path, at: int) -> bool:
    try:
        file = files.open(path / LOCK_FILE)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(file.fileno(), fcntl.F_OFD_GETLK, _bytes(at, fcntl.F_WRLCK))
    except OSError as error:
        raise told(error, "look at the locks of", file.path) from None
    finally:
        file.close()
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


_CLOSE_IT: Final = "; close it there, or open it here with mode='read'"
_ATTACH: Final = "; attach to it with mode='auto', read beside it with mode='read', or close it"

_STOP_IT: Final = "; stop it first: this is done while nobody has the store open"


@contextmanager
def unowned(files: FileSystem, path: Path) -> Iterator[None]:
    """What nobody can do beside a living owner, however it was opened: the error says so.

    Outside of whatever takes the lock, which is let go by then.
    """
    try:
        yield
    except StoreLocked:
        if not is_owned(files, path):
            raise
        raise locked(files, path, _STOP_IT) from None


def locked(files: FileSystem, path: Path, advice: str | None = None) -> StoreLocked:
    """The error for a store directory that somebody owns.

    :param advice: what else there is to say of it, and what to do
    """
    if advice is None:
        advice = _ATTACH if is_attended(files, path) else _CLOSE_IT
    pid = owner_pid(files, path)
    who = f"process {pid}{_command(pid)}" if pid else "another process"
    return StoreLocked(f"{who} owns this store{advice}", path=path, owner_pid=pid)


def _command(pid: int) -> str:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\x00")
        text = b" ".join(words).decode(errors="replace")
        return f" ({' '.join(text.split())[:80]})"
    return ""


def owner_pid(files: FileSystem, path: Path) -> int | None:
    """The process that the ``abort`` file names, if any."""
    content = read_file(files, path / ABORT_FILE) or b""
    return int(content) if content.strip().isdigit() else None


def write_abort(files: FileSystem, path: Path) -> None:
    """Mark the store as running; its former content goes to ``abort.bak``, as in RocketMQ."""
    former = read_file(files, path / ABORT_FILE) or b""
    overwrite_file(files, path / ABORT_BACKUP_FILE, former)
    overwrite_file(files, path / ABORT_FILE, str(os.getpid()).encode())
    files.sync_dir(path)


def remove_abort(files: FileSystem, path: Path) -> None:
    """Mark the store as cleanly stopped; everything else is durable by now."""
    files.unlink(path / ABORT_FILE)
    files.sync_dir(path)
