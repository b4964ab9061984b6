"""Who owns a store directory: the lock on ``lock``, and the ``abort`` file while a store runs.

The lock is an open-file-description lock on byte 0: POSIX lockers, Java's included, see it; a
second open in the same process is refused; and closing another descriptor of the file does not
release it. RocketMQ takes ``abort`` for the sign of an unclean stop; it holds the owner's pid.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

import attrs

from lakelog.errors import StoreLocked
from lakelog.files import File, FileSystem, overwrite_file, read_file
from lakelog.layout import ABORT_BACKUP_FILE, ABORT_FILE, LOCK_CONTENT, LOCK_FILE

_FLOCK: Final = Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


_OWNED: Final = 0
_FOLLOWED: Final = 1
"""The byte of ``lock`` that is locked once queues follow the log; RocketMQ has none."""
_PUBLISHED: Final = 2
"""The byte that is locked while the owner keeps the positions page; RocketMQ has none."""


def _byte(at: int, kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, at, 1, 0)


@attrs.frozen
class OwnerLock:
    """The lock of one owner; gone when it is released or the process ends."""

    _file: File

    @classmethod
    def take(cls, files: FileSystem, path: Path) -> OwnerLock:
        """Lock the store directory ``path``; raises :class:`~lakelog.errors.StoreLocked`."""
        file = files.open(path / LOCK_FILE, write=True, create=True)
        try:
            fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, _byte(_OWNED, fcntl.F_WRLCK))
            if file.size() == 0:
                file.write_at(0, LOCK_CONTENT)
        except OSError as error:
            file.close()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise locked(files, path) from None
            raise
        return cls(file)

    def tell_followed(self) -> None:
        """Let readers know that queues were complete, and follow the log from now on."""
        fcntl.fcntl(self._file.fileno(), fcntl.F_OFD_SETLK, _byte(_FOLLOWED, fcntl.F_WRLCK))

    def tell_published(self) -> None:
        """Let readers know that the positions page is this owner's, for as long as it lives."""
        fcntl.fcntl(self._file.fileno(), fcntl.F_OFD_SETLK, _byte(_PUBLISHED, fcntl.F_WRLCK))

    def release(self) -> None:
        """Let another process own the store."""
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


def _is_locked(files: FileSystem, path: Path, at: int) -> bool:
    try:
        file = files.open(path / LOCK_FILE)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(file.fileno(), fcntl.F_OFD_GETLK, _byte(at, fcntl.F_WRLCK))
    finally:
        file.close()
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def locked(files: FileSystem, path: Path) -> StoreLocked:
    """The error for a store directory that somebody owns."""
    pid = owner_pid(files, path)
    who = f"process {pid}{_command(pid)}" if pid else "another process"
    return StoreLocked(
        f"{who} owns this store; close it there, or open it here with mode='read'",
        path=path,
        owner_pid=pid,
    )


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
