"""Observes a running store from another process, for ``lakelog top`` and metrics.

The status file of ``serve`` is used if the process that wrote it is alive, owns the store, and
wrote it recently; positions and rates are measured again. With any other owner, the view consists
of its shared page and of Linux's data on its processes.

Linux shows a process's open and mapped files, and the locks of each open file, to permitted users
only (proc(5)). A user sees their own processes; root sees all of its PID namespace. The total
number of locks is visible to all users, so that hidden processes can at least be counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import NoOwner, NotAStore
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.layout import LOCK_FILE
from lakelog.log.commit_log import APPENDING
from lakelog.processes import shared_page
from lakelog.processes.ownership import (
    OPEN,
    SERVICES,
    is_held,
    is_owned,
    is_served,
    open_lock,
    owner_pid,
)
from lakelog.processes.shared_page import PageReader, PageView, process_start
from lakelog.store.open import prepare
from lakelog_daemon import status
from lakelog_daemon.processes import Usage, command_of, look_at

_GONE: Final = " (deleted)"


def look_for_members(path: Path, commitlog: Path) -> dict[str, Any]:
    """Inspect all processes once; returns a part of the view.

    ``members``
        for each process: ``pid``, its program's ``name``, ``opens`` (how many times it has the
        store open), and ``does`` (the services that it runs, according to its locks)
    ``members_not_seen``
        number of further opens by hidden processes; ``None`` if Linux does not show it
    ``deleted``
        for each process: ``pid``, ``name``, and the ``files`` and ``bytes`` that are deleted, but
        stay on disk until it closes them
    ``processes_not_readable``
        number of processes whose open files Linux does not show

    :param path: the store directory
    """
    lock = os.path.realpath(path / LOCK_FILE)
    roots = tuple(f"{os.path.realpath(each)}/" for each in (path, commitlog))
    rows, deleted, unreadable = list[dict[str, Any]](), list[dict[str, Any]](), 0
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            opened = dict(_opened(pid))
        except PermissionError:
            unreadable += bool(command_of(pid))  # else it is a kernel thread, or has ended
            continue
        held = [
            _bytes_of(pid, fd) for fd, target in opened.items() if target in (lock, lock + _GONE)
        ]
        opens = [each for each in held if OPEN in each]
        if opens:
            does = ["services"] if any(SERVICES in each for each in held) else []
            rows.append({**_named(pid), "opens": len(opens), "does": does})
        gone = {**_mapped(pid, roots), **_unlinked(pid, opened, roots)}
        if gone:
            deleted.append({**_named(pid), "files": len(gone), "bytes": sum(gone.values())})
    known, seen = _open_locks(path), sum(row["opens"] for row in rows)
    return {
        "members": rows,
        "members_not_seen": None if known is None else max(0, known - seen),
        "deleted": deleted,
        "processes_not_readable": unreadable,
    }


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


def _open_locks(path: Path) -> int | None:
    """The number of locks on byte 0 of ``lock``, by any process."""
    try:
        with closing(open_lock(RealFileSystem(), path)) as lock:
            seen = os.fstat(lock.fileno())
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    found = [line.split() for line in lines if device in line]
    return sum(words[-3:-1] == [device, str(OPEN)] for words in found if "->" not in words)


FRESH_MS: Final = 10_000
"""Largest age of a status, in ms; a healthy ``serve`` writes one every second."""
LONG_MS: Final = 1_000
"""Duration from which an append is reported, in ms: all other appends wait for it."""
SILENT_MS: Final = 3000
"""Age of a heartbeat, in ms, from which it is reported; it is written every 500 ms."""


@attrs.define
class Watcher:
    """Builds views; rates cover the time since the last one."""

    files: FileSystem
    path: Path
    commitlog: Path
    _reader: PageReader = attrs.field(init=False)
    _former: status.CounterSample | None = attrs.field(default=None, init=False)
    _usage: Usage = attrs.field(factory=Usage, init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = PageReader(self.files, self.path)

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        *,
        settings: object | None = None,
        broker_conf: str | os.PathLike[str] | None = None,
        **arguments: Any,
    ) -> Watcher:
        """Watch the store in ``path``; the settings give the places of its parts, as in an open."""
        place = Path(os.path.abspath(path))
        opening = prepare(
            place,
            settings=settings,
            broker_conf=broker_conf,
            tolerate_missing=True,
            reads=True,
            arguments=arguments,
        )
        core = opening.settings.core
        return cls(RealFileSystem(), place, core.commitlog(place))

    @property
    def needs_two(self) -> bool:
        """Whether the first view cannot contain rates."""
        return self._former is None and self._served() is None

    def view(self) -> dict[str, Any]:
        """The view, as described in :mod:`lakelog_daemon.status`; ``served_by`` names its source.

        Adds what :func:`look_for_members` finds, the process with the ``services``, and a slow
        append (``appending``).

        Without ``serve`` there are no followers. Problems are then a missing heartbeat, or services
        that no process runs. If RocketMQ owns the store, there are no positions either.

        For a folder with the copies of several masters, the view is the status of that folder.

        Raises :class:`~lakelog.errors.NoOwner` if no process has the store open, and
        :class:`~lakelog.errors.NotAStore` if there is no such directory.
        """
        if not self.path.is_dir():
            raise NotAStore("no store is here; is the path right?", path=self.path)
        if not is_owned(self.files, self.path):
            folder = self._fresh()
            if folder is not None and "masters" in folder:
                return {"served_by": "serve", **folder}
            raise NoOwner("nobody has this store open; nothing is at work", path=self.path)
        page, served = self._reader.page(), self._served()
        if served is not None:
            view = {"served_by": "serve", **served}
        else:
            view = {"served_by": None, **self._plain(page)}
        seen = with_owner_state(view, page if is_served(self.files, self.path) else None)
        return {**seen, **self._positions(page), **self._members(page)}

    def _members(self, page: PageView | None) -> dict[str, Any]:
        """The processes that have the store open, as far as visible, and their exclusive roles."""
        before = self._long(page)
        found = look_for_members(self.path, self.commitlog)
        still = before is not None and before == self._long(page)
        services = next((row["pid"] for row in found["members"] if row["does"]), None)
        if services is None and page is not None and is_served(self.files, self.path):
            services = page.owner[0]
        appending = None
        if still and before is not None:
            boot_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000
            appending = {"pid": before[0], "since_ms": before[1] + boot_ms}
        return {**found, "services": services, "appending": appending}

    def _long(self, page: PageView | None) -> tuple[int, int] | None:
        """The process in a slow append, and its start in ms of the monotonic clock.

        ``None`` while a single process has the store open.
        """
        if page is None or not page.words[shared_page.SEVERAL]:
            return None
        words = page.words
        since_ms, holder = words[shared_page.APPENDER_SINCE], words[shared_page.APPEND_HOLDER]
        place = shared_page.LIFE_AT + holder if holder else APPENDING
        if not is_held(self.files, self.path, place):
            return None
        is_long = time.monotonic_ns() // 1_000_000 - since_ms >= LONG_MS
        return (words[shared_page.APPENDER_PID], since_ms) if is_long else None

    def _served(self) -> dict[str, Any] | None:
        """The status of a running ``serve`` that owns the store, if any."""
        found = self._fresh()
        is_owner = found is not None and found["pid"] == owner_pid(self.files, self.path)
        return found if is_owner else None

    def _fresh(self) -> dict[str, Any] | None:
        """The status of a process that runs and has written it recently."""
        found = status.read_status(self.files, self.path)
        if found is None or found.get("version") != status.VERSION:
            return None
        beat, pid = found.get("heartbeat_ms"), found.get("pid")
        if type(beat) is not int or type(pid) is not int:
            return None
        is_fresh = abs(time.time_ns() // 1_000_000 - beat) < FRESH_MS
        start = process_start(pid) if is_fresh else None
        return found if start is not None and start == found.get("start_ticks") else None

    def _plain(self, page: PageView | None) -> dict[str, Any]:
        pid = page.owner[0] if page is not None else owner_pid(self.files, self.path)
        problems = []
        if page is not None and not is_served(self.files, self.path):
            problems.append("nobody has the services: nothing is dispatched or deleted")
        state = page.state.name.lower() if page is not None and page.state is not None else "open"
        return {
            "path": str(self.path),
            "pid": pid,
            "heartbeat_ms": None if page is None else status.heartbeat_ms(page),
            "state": state,
            "health": "failed" if state == "failed" else "degraded" if problems else "ok",
            "problems": problems,
            "disks": status.disks(self.path, self.commitlog),
            "processes": [] if pid is None else self._usage.rows(pid, ()),
        }

    def _positions(self, page: PageView | None) -> dict[str, Any]:
        """The positions in the shared page; rates only from the second call on."""
        if page is None:
            return {}
        sample = status.CounterSample(time.monotonic(), status.counts(page))
        former, self._former = self._former, sample
        view: dict[str, Any] = {"positions": sample.counts}
        if former is not None:
            view["rates"] = status.rates(former, sample)
            view["flush"] = {"mean_ms": status.sync_ms(former, sample)}
        followers = status.follower_lags(self.files, self.path, sample.counts["flushed"])
        return {**view, "lags": {**status.lags(sample.counts), "followers": followers}}


def with_owner_state(view: Mapping[str, Any], page: PageView | None) -> dict[str, Any]:
    """``view`` with two additions: a missing heartbeat of the owner, and stopped processes.

    A running owner writes its heartbeat to the shared page. A stopped owner does not, and its last
    status still reports that all is well. Linux reports the true state.
    """
    rows = [_row(each) for each in view["processes"]]
    age_ms = 0 if page is None else time.time_ns() // 1_000_000 - status.heartbeat_ms(page)
    if page is None or age_ms < SILENT_MS:
        return {**view, "processes": rows}
    health = "degraded" if view["health"] == "ok" else view["health"]
    silence = f"no heartbeat for {age_ms // 1000} s: process {page.owner[0]} is stopped, or hangs"
    problems = [silence, *view["problems"]]
    return {**view, "health": health, "problems": problems, "processes": rows}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    found = None if row["pid"] is None else look_at(row["pid"])
    if found is None or not found.is_stopped:
        return dict(row)
    return {**row, "state": "stopped", "health": "hanging"}
