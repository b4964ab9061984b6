"""Reads state, CPU time, memory and children of processes from Linux; see proc(5).

Parsed by hand: it runs every second, and costs a tenth of what a library does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import attrs

TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MOST_BYTES: Final = 1 << 16
_STOPPED: Final = frozenset("Tt")
_DEAD: Final = frozenset("ZX")


@attrs.frozen
class ProcStat:
    """One process, or the sum of several.

    :ivar name: name of its program, at most 15 characters
    :ivar state: Linux's letter: ``R`` running, ``S`` sleeping, ``T`` stopped, ``Z`` ended
    :ivar start_ticks: start in clock ticks since boot; distinguishes processes that reuse an id
    :ivar cpu_seconds: CPU time used, user and system
    :ivar rss_bytes: resident memory, including pages shared with other processes
    """

    pid: int
    name: str
    state: str
    start_ticks: int
    cpu_seconds: float
    rss_bytes: int

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it."""
        return self.state in _STOPPED

    def plus(self, other: ProcStat) -> ProcStat:
        """The sum of this and ``other``."""
        cpu, rss = self.cpu_seconds + other.cpu_seconds, self.rss_bytes + other.rss_bytes
        return attrs.evolve(self, cpu_seconds=cpu, rss_bytes=rss)


def look_at(pid: int) -> ProcStat | None:
    """The state of one process; ``None`` if it does not exist, or has ended."""
    text = _read(f"/proc/{pid}/stat").decode(errors="replace")
    if not text:
        return None
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if fields[0] in _DEAD:
        return None
    return ProcStat(
        pid,
        head.partition("(")[2],
        fields[0],
        int(fields[19]),
        (int(fields[11]) + int(fields[12])) / TICKS,
        int(fields[21]) * PAGE_BYTES,
    )


def children(pid: int) -> list[int]:
    """The child processes; empty if the kernel does not list them."""
    return [int(word) for task in _tasks(pid) for word in _read(f"{task}/children").split()]


def command_of(pid: int) -> list[str]:
    """The command line of a process; empty if it does not exist."""
    words = _read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    return [word.decode(errors="replace") for word in words]


def with_children(pid: int) -> ProcStat | None:
    """A process, plus CPU time and memory of all its descendants."""
    found = look_at(pid)
    if found is None:
        return None
    for each in _below(pid):
        found = found.plus(each)
    return found


def _below(pid: int) -> Iterator[ProcStat]:
    for each in children(pid):
        seen = look_at(each)
        if seen is not None:
            yield seen
            yield from _below(each)


def _tasks(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _read(path: str) -> bytes:
    """Read a small file of ``/proc``; empty if it does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, _MOST_BYTES)
        finally:
            os.close(fd)
    except OSError:
        return b""
