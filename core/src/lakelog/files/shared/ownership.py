"""Who has a store directory open: locks on bytes of ``lock``, and ``abort`` while a store runs.

RocketMQ takes ``abort`` for the sign of an unclean stop; it holds the process id of who wrote it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakelog.errors import StoreLocked
from lakelog.files.filesystem import FileSystem, overwrite_file, read_file
from lakelog.files.shared.ofd_lock import is_locked
from lakelog.format.layout import ABORT_BACKUP_FILE, ABORT_FILE, LOCK_FILE

SERVICES: Final = 16
"""The byte of ``lock`` that is locked by the process that dispatches, deletes and writes the
checkpoint.
"""
_OWNED: Final = 0
_FOLLOWED: Final = 1
"""The byte of ``lock`` that is locked once queues follow the log; RocketMQ has none."""
_PUBLISHED: Final = 2
"""The byte that is locked by those for whom the shared page is right; RocketMQ has none."""


def is_owned(files: FileSystem, path: Path) -> bool:
    """Whether somebody owns the store directory ``path`` now; changes nothing."""
    return is_held(files, path, _OWNED)


def is_followed(files: FileSystem, path: Path) -> bool:
    """Whether a living owner said that its queues follow its log; changes nothing.

    It does not say so while it completes what a crash left, and RocketMQ never does.
    """
    return is_held(files, path, _FOLLOWED)


def is_published(files: FileSystem, path: Path) -> bool:
    """Whether a living owner keeps the shared page; changes nothing. RocketMQ never does."""
    return is_held(files, path, _PUBLISHED)


def is_served(files: FileSystem, path: Path) -> bool:
    """Whether a living process dispatches and deletes for all; changes nothing."""
    return is_held(files, path, SERVICES)


def is_held(files: FileSystem, path: Path, at: int) -> bool:
    """Whether anybody has a lock on byte ``at`` of ``lock``; changes nothing."""
    try:
        file = files.open(path / LOCK_FILE)
    except OSError:
        return False
    try:
        return is_locked(file, at, fcntl.F_WRLCK)
    finally:
        file.close()


CLOSE_IT: Final = "; close it there, or open it here with mode='read'"

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
    """The error for a store directory that somebody has open.

    :param advice: what else there is to say of it, and what to do
    """
    if advice is None:
        advice = CLOSE_IT
    pid = owner_pid(files, path)
    return StoreLocked(f"{_who(pid)} has this store open{advice}", path=path, owner_pid=pid)


def closed_to_all(files: FileSystem, path: Path, why: str | None) -> StoreLocked:
    """The error for a store directory that somebody has for itself.

    :param why: as that process says; ``None`` where it says nothing
    """
    pid = owner_pid(files, path)
    why = why or "it is RocketMQ, or repairs or rebuilds the store"
    return StoreLocked(
        f"{_who(pid)} has this store open and lets nobody in: {why}{CLOSE_IT}",
        path=path,
        owner_pid=pid,
    )


def _who(pid: int | None) -> str:
    alive = pid is not None and Path(f"/proc/{pid}").exists()
    return f"process {pid}{_command(pid)}" if pid and alive else "another process"


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
