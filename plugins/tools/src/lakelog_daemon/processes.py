"""CPU time, memory, state and children of processes, for the status of a ``serve``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import psutil


@attrs.frozen
class ProcessSample:
    """One process, or the sum of several.

    :ivar name: name of its program
    :ivar is_stopped: whether a signal or a debugger has stopped it
    :ivar start_seconds: start in seconds since 1970; distinguishes processes that reuse an id
    :ivar cpu_seconds: CPU time used, user and system
    :ivar rss_bytes: resident memory, including pages shared with other processes
    """

    pid: int
    name: str
    is_stopped: bool
    start_seconds: float
    cpu_seconds: float
    rss_bytes: int


def look_at(pid: int) -> ProcessSample | None:
    """The state of one process; ``None`` if it does not exist, or has ended."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            state = process.status()
            if state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
            times = process.cpu_times()
            return ProcessSample(
                pid,
                process.name(),
                state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP),
                process.create_time(),
                times.user + times.system,
                process.memory_info().rss,
            )
    except (psutil.Error, ValueError):  # the latter: no process has this id
        return None


def children(pid: int) -> list[int]:
    """The child processes; empty if the kernel does not list them.

    ``psutil`` would read all processes of the machine for it, every second.
    """
    try:
        lists = [each.read_bytes() for each in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(word) for each in lists for word in each.split()]


def command_of(pid: int) -> list[str]:
    """The command line of a process; empty if it does not exist."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def with_children(pid: int) -> ProcessSample | None:
    """A process, plus CPU time and memory of all its descendants."""
    found = look_at(pid)
    if found is not None:
        for below in filter(None, map(with_children, children(pid))):
            cpu, rss = found.cpu_seconds + below.cpu_seconds, found.rss_bytes + below.rss_bytes
            found = attrs.evolve(found, cpu_seconds=cpu, rss_bytes=rss)
    return found


@attrs.define
class Usage:
    """Computes usage since the last call."""

    _former: dict[tuple[int, float], tuple[float, float]] = attrs.field(factory=dict, init=False)

    def rows(self, owner_pid: int, services: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The owner, its services with their descendants, and its other children.

        :param services: rows with a ``pid``, which may be ``None``
        """
        now, seen = time.monotonic(), dict[tuple[int, float], tuple[float, float]]()

        def used(found: ProcessSample | None) -> dict[str, Any]:
            if found is None:
                return {"cpu_percent": None, "rss_bytes": None}
            key = (found.pid, found.start_seconds)
            seen[key] = (now, found.cpu_seconds)
            return {
                "cpu_percent": _percent(self._former.get(key), now, found.cpu_seconds),
                "rss_bytes": found.rss_bytes,
            }

        listed = list(services)
        rows = [_plain("owner", owner_pid) | used(look_at(owner_pid))]
        trees = [None if row["pid"] is None else with_children(row["pid"]) for row in listed]
        rows += [{**row, **used(tree)} for row, tree in zip(listed, trees, strict=True)]
        others = set(children(owner_pid)) - {row["pid"] for row in listed}
        for found in filter(None, map(with_children, sorted(others))):
            rows.append(_plain("child", found.pid, _name(found)) | used(found))
        self._former = seen
        return rows


def _plain(kind: str, pid: int, name: str | None = None) -> dict[str, Any]:
    return {"name": name or kind, "kind": kind, "pid": pid, "state": "running", "health": "ok"}


def _name(found: ProcessSample) -> str:
    """The module name of a Python module, else the program name."""
    words = command_of(found.pid)
    module = words[words.index("-m") + 1 :] if "-m" in words else ()
    return module[0].rpartition(".")[2] if module else found.name


def _percent(former: tuple[float, float] | None, now: float, cpu_seconds: float) -> float | None:
    """Percentage of one core, at least 0: the sum loses the CPU time of a child that ended."""
    if former is None or now <= former[0]:
        return None
    return round(max(0.0, (cpu_seconds - former[1]) / (now - former[0]) * 100), 2)
