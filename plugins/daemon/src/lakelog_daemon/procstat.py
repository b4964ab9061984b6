"""What Linux says of processes: state, processor time, memory, children; from proc(5).

Read by hand: it costs a tenth of what a library takes, and is done every second.
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
    """One process, or several added up.

    :ivar name: of its program, at most 15 letters
    :ivar state: Linux's letter: ``R`` runs, ``S`` sleeps, ``T`` is stopped, ``Z`` has ended
    :ivar start_ticks: when it began, in clock ticks since boot: ids are used again, these are not
    :ivar cpu_seconds: processor time that it has used, user and system
    :ivar rss_bytes: memory that it has in RAM, pages shared with others included
    """

    pid: int
    name: str
    state: str
    start_ticks: int
    cpu_seconds: float
    rss_bytes: int

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger holds it."""
        return self.state in _STOPPED

    def plus(self, other: ProcStat) -> ProcStat:
        """With what ``other`` uses."""
        cpu, rss = self.cpu_seconds + other.cpu_seconds, self.rss_bytes + other.rss_bytes
        return attrs.evolve(self, cpu_seconds=cpu, rss_bytes=rss)


def look_at(pid: int) -> ProcStat | None:
    """One process; ``None`` if it is not there, or has ended."""
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
    """The processes that one has started; none where the kernel does not say."""
    return [int(word) for task in _tasks(pid) for word in _read(f"{task}/children").split()]


def command_of(pid: int) -> list[str]:
    """The words by which a process was started; none if it is not there."""
    words = _read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    return [word.decode(errors="replace") for word in words]


def with_children(pid: int) -> ProcStat | None:
    """A process, with the time and memory of all that it has started."""
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
    """A small file of Linux's; nothing if it is not there, or has gone meanwhile."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, _MOST_BYTES)
        finally:
            os.close(fd)
    except OSError:
        return b""
