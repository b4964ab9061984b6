"""Whether a store directory is open: locks on bytes of ``lock``, and the file ``abort``.

``lock`` is only a name. If it is removed while the store is open, its processes go on with the file
that they have, and others open that one by a descriptor of theirs, in ``/proc``.

``abort`` holds the process id of its writer; for RocketMQ it is the sign of an unclean stop.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from lakelog.errors import StoreLocked
from lakelog.files.filesystem import File, FileSystem, overwrite_file, read_file
from lakelog.format.layout import ABORT_BACKUP_FILE, ABORT_FILE, LOCK_FILE
from lakelog.processes.locks import described, has_locked, is_locked

_LOG: Final = logging.getLogger("lakelog")
SERVICES: Final = 16
"""The byte of ``lock`` that is locked by the process that dispatches, deletes and writes the
checkpoint.
"""
OPEN: Final = 0
"""The byte that each process with the store open locks, RocketMQ included."""
FOLLOWED: Final = 1
"""The byte that is locked while the queues follow the log; never by RocketMQ."""
PUBLISHED: Final = 2
"""The byte that processes with a valid shared page lock; never by RocketMQ."""


def is_owned(files: FileSystem, path: Path) -> bool:
    """Whether a process has the store directory ``path`` open; changes nothing."""
    with suppress(OSError), closing(files.open(path / LOCK_FILE)) as file:
        if is_locked(file, OPEN, fcntl.F_WRLCK):
            return True
    return bool(_holders(path))


def _holders(path: Path) -> list[int]:
    """The processes that lock the directory, which each one of lakelog with the store open does.

    From the kernel's list, since a lock for a look would refuse a process that joins meanwhile.
    Without those that cannot be seen: in another container, or on btrfs.
    """
    pids = list[int]()
    with suppress(OSError):
        found = path.stat()
        major, minor = os.major(found.st_dev), os.minor(found.st_dev)
        name = f" {major:02x}:{minor:02x}:{found.st_ino} "
        locks = Path("/proc/locks").read_text(encoding="ascii")
        for line in locks.splitlines() if name in locks else ():
            words = line.split()
            if words[1] == "FLOCK" and name.strip() in words:
                pids.append(int(words[words.index(name.strip()) - 1]))
    return pids


def open_lock(files: FileSystem, path: Path, *, write: bool = False, create: bool = False) -> File:
    """Open the file ``lock`` that the processes of the store use, also if its name was removed.

    :param create: whether to create it if no process has the store open

    Raises ``OSError``.
    """
    with suppress(FileNotFoundError):
        named = files.open(path / LOCK_FILE, write=write)
        try:
            if is_locked(named, OPEN, fcntl.F_WRLCK):
                return named
        except BaseException:  # Ctrl-C too
            named.close()
            raise
        named.close()
    used = open_of_members(files, path, LOCK_FILE, at=OPEN, write=write)
    return used or files.open(path / LOCK_FILE, write=write, create=create)


def open_of_members(
    files: FileSystem, path: Path, name: str, *, at: int | None = None, write: bool = False
) -> File | None:
    """Open a file of the directory ``path`` that a process with the store open has open.

    :param name: the name that it has or had, relative to ``path``
    :param at: a byte that the process must have locked
    :returns: ``None`` if no process is seen to have it
    """
    for pid in dict.fromkeys(_holders(path)):
        with suppress(OSError):
            for link in _descriptors_of(pid, path, name):
                with suppress(OSError):
                    seen = os.stat(link)
                    if at is None or has_locked(link.replace("/fd/", "/fdinfo/"), at):
                        file = files.open_again(path / name, link, write=write)
                        if os.path.samestat(os.fstat(file.fileno()), seen):
                            return file
                        file.close()  # the number was given to another file meanwhile
    return None


def _descriptors_of(pid: int, path: Path, name: str) -> list[str]:
    """The links of a process's open files with this name in the directory ``path``.

    The texts of the links differ by mount namespace, so they are compared with that of the
    process's own descriptor of the directory, which it has locked.
    """
    targets = dict[str, str]()
    for each in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            targets[f"/proc/{pid}/fd/{each}"] = os.readlink(f"/proc/{pid}/fd/{each}")
    for link, target in targets.items():
        with suppress(OSError):
            if os.path.samestat(os.stat(link), os.stat(path)):
                names = f"{target}/{name}", f"{target}/{name} (deleted)"
                return [link for link, target in targets.items() if target in names]
    return []


def is_followed(files: FileSystem, path: Path) -> bool:
    """Whether a living owner has published that its queues follow its log; changes nothing.

    False while it completes the queues after a crash, and always for RocketMQ.
    """
    return is_held(files, path, FOLLOWED)


def is_published(files: FileSystem, path: Path) -> bool:
    """Whether a living owner publishes a valid shared page; changes nothing. False for RocketMQ."""
    return is_held(files, path, PUBLISHED)


def is_served(files: FileSystem, path: Path) -> bool:
    """Whether a living process has the services; changes nothing."""
    return is_held(files, path, SERVICES)


def is_held(files: FileSystem, path: Path, at: int) -> bool:
    """Whether byte ``at`` of ``lock`` is locked; changes nothing."""
    try:
        file = open_lock(files, path)
    except OSError:
        return False
    with closing(file):
        return is_locked(file, at, fcntl.F_WRLCK)


CANNOT_JOIN: Final = (
    f", but the file {LOCK_FILE} was removed, and cannot be opened through /proc: it belongs to "
    "another user or container, or /proc is hidden; close it there"
)
CLOSE_IT: Final = "; close it there, or open it here with mode='read'"

_STOP_IT: Final = "; stop it first, as no process may have the store open meanwhile"


@contextmanager
def unowned(files: FileSystem, path: Path) -> Iterator[None]:
    """Guard of work that a living owner forbids: its ``StoreLocked`` names the owner and a remedy.

    It must enclose the code that takes the lock, so that the lock is released before the owner is
    determined.
    """
    try:
        yield
    except StoreLocked:
        if not is_owned(files, path):
            raise
        raise locked(files, path, _STOP_IT) from None


def locked(files: FileSystem, path: Path, more: str | None = None) -> StoreLocked:
    """The error for a store that is open elsewhere; names the process.

    :param more: continues the sentence, as with advice
    """
    pid = owner_pid(files, path)
    if not is_held(files, path, OPEN):
        pid, more = next(iter(_holders(path)), pid), more or CANNOT_JOIN
    who = described(pid) if pid and Path(f"/proc/{pid}").exists() else "another process"
    return StoreLocked(f"{who} has this store open{more or CLOSE_IT}", path=path, owner_pid=pid)


def owner_pid(files: FileSystem, path: Path) -> int | None:
    """The process id in the ``abort`` file, if any."""
    content = read_file(files, path / ABORT_FILE) or b""
    return int(content) if content.strip().isdigit() else None


def write_abort(files: FileSystem, path: Path) -> None:
    """Mark the store durably as open; the former content goes to ``abort.bak``, as in RocketMQ.

    The process id in ``abort`` is evidence after a power cut: recovery compares it with the shared
    page. The backup is none, so only its name is synced.
    """
    former = read_file(files, path / ABORT_FILE) or b""
    overwrite_file(files, path / ABORT_BACKUP_FILE, former, durable=False)
    overwrite_file(files, path / ABORT_FILE, str(os.getpid()).encode())
    files.sync_dir(path)


def remove_abort(files: FileSystem, path: Path) -> None:
    """Mark the store as cleanly stopped; all else must be durable already."""
    try:
        files.unlink(path / ABORT_FILE)
    except FileNotFoundError:
        _LOG.warning(
            "%s: the file %s was removed while the store was open; exclude its directory from "
            "what removes old files",
            path,
            ABORT_FILE,
        )
    files.sync_dir(path)
