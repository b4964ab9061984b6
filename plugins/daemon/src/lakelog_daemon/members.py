"""Finds the processes that have a store open, or that retain its deleted files on disk.

Linux shows a process's open and mapped files, and the locks of each open file, to permitted users
only (proc(5)). A user sees their own processes; root sees all of its PID namespace. The total
number of locks is visible to all users, so that hidden processes can at least be counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.files.shared.ownership import OPEN, SERVICES
from lakelog.format.layout import LOCK_FILE
from lakelog_daemon.processes import command_of, look_at

_GONE: Final = " (deleted)"


@attrs.frozen
class Members:
    """The result of one inspection.

    :ivar rows: for each process: ``pid``, its program's ``name``, ``opens`` (how many times it has
        the store open), and ``does`` (the services that it runs, according to its locks)
    :ivar not_seen: number of further opens by hidden processes; ``None`` if Linux does not show it
    :ivar deleted: for each process: ``pid``, ``name``, and the ``files`` and ``bytes`` that are
        deleted, but stay on disk until it closes them
    :ivar unreadable: number of processes whose open files Linux does not show
    """

    rows: tuple[dict[str, Any], ...]
    not_seen: int | None
    deleted: tuple[dict[str, Any], ...]
    unreadable: int

    @property
    def services(self) -> int | None:
        """The id of the process that runs the services, if it was seen."""
        return next((row["pid"] for row in self.rows if "services" in row["does"]), None)


def look_for_members(path: Path, commitlog: Path) -> Members:
    """Inspect all processes once; ``path`` is the store directory."""
    lock = os.path.realpath(path / LOCK_FILE)
    roots = tuple(f"{os.path.realpath(each)}/" for each in (path, commitlog))
    rows, deleted, unreadable = list[dict[str, Any]](), list[dict[str, Any]](), 0
    for pid in _processes():
        try:
            opened = dict(_opened(pid))
        except PermissionError:
            unreadable += bool(command_of(pid))  # else it is a kernel thread, or has ended
            continue
        held = [_bytes_of(pid, fd) for fd, target in opened.items() if target == lock]
        opens = [each for each in held if OPEN in each]
        if opens:
            does = ["services"] if any(SERVICES in each for each in held) else []
            rows.append({**_named(pid), "opens": len(opens), "does": does})
        gone = {**_mapped(pid, roots), **_unlinked(pid, opened, roots)}
        if gone:
            deleted.append({**_named(pid), "files": len(gone), "bytes": sum(gone.values())})
    known, seen = _open_locks(lock), sum(row["opens"] for row in rows)
    not_seen = None if known is None else max(0, known - seen)
    return Members(tuple(rows), not_seen, tuple(deleted), unreadable)


def _processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _named(pid: int) -> dict[str, Any]:
    found = look_at(pid)
    return {"pid": pid, "name": "" if found is None else found.name}


def _opened(pid: int) -> Iterator[tuple[str, str]]:
    """Descriptors and their targets; raises ``PermissionError``."""
    folder = f"/proc/{pid}/fd"
    with suppress(FileNotFoundError, ProcessLookupError):
        for fd in os.listdir(folder):
            with suppress(FileNotFoundError, ProcessLookupError):
                yield fd, os.readlink(f"{folder}/{fd}")


def _bytes_of(pid: int, fd: str) -> set[int]:
    """The first byte of each range that an open file has locked."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/fdinfo/{fd}").read_text().splitlines()
        return {int(line.split()[-2]) for line in lines if line.startswith("lock:")}
    return set()


def _unlinked(pid: int, opened: dict[str, str], roots: tuple[str, ...]) -> dict[int, int]:
    """The disk space of deleted files that a process has open, by inode number."""
    found: dict[int, int] = {}
    for fd, target in opened.items():
        if target.endswith(_GONE) and target.startswith(roots):
            with suppress(OSError):
                seen = os.stat(f"/proc/{pid}/fd/{fd}")
                found[seen.st_ino] = 512 * seen.st_blocks
    return found


def _mapped(pid: int, roots: tuple[str, ...]) -> dict[int, int]:
    """The mapped length of deleted files, by inode number; their descriptors may be closed."""
    found: dict[int, int] = {}
    with suppress(OSError):
        for line in os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes()).splitlines():
            if line.endswith(_GONE):
                where, _, offset, _, inode, target = line.split(maxsplit=5)
                if target.startswith(roots):
                    start, end = (int(each, 16) for each in where.split("-"))
                    reach = int(offset, 16) + end - start
                    found[int(inode)] = max(reach, found.get(int(inode), 0))
    return found


def _open_locks(lock: str) -> int | None:
    """The number of locks on byte 0 of ``lock``, by any process."""
    try:
        seen = os.stat(lock)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    found = [line.split() for line in lines if device in line]
    return sum(words[-3:-1] == [device, str(OPEN)] for words in found if "->" not in words)
