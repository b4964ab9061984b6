"""Kills owners inside the copy of an append; the test chooses the bytes that are copied before.

A program of :mod:`tests.support.forked`; its input is JSON, one :class:`Death` per line. Each owner
is a separate process, forked from one that has no store, and ends by SIGKILL. For each death, one
line of output has the physical offsets of the acknowledged messages, the next one how it ended.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import attrs

import lakelog
from lakelog import Message
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.message import Body
from tests.support.twostores import SETTINGS

MADE: Final = 3
LOST: Final = 4
HOLE_BYTES: Final = 64
"""As many bytes as a C library's copy keeps in registers until its end."""
ORDERS: Final[dict[str, Callable[[int], tuple[slice, ...]]]] = {
    "forward": lambda at: (slice(at),),
    "backward": lambda at: (slice(at, None),),
    "hole": lambda at: (slice(at), slice(at + HOLE_BYTES, None)),
    "ends last": lambda at: (slice(HOLE_BYTES, at),),
}
"""The slices of a write that are stored if it is interrupted at a byte, by the order of copying."""


@attrs.frozen
class Death:
    """The death of one owner.

    :ivar order: the order in which bytes are copied, one of :data:`ORDERS`; ``skipped`` leaves out
        a whole write, and dies after the next one; ``fault`` is the C library's own order
    :ivar at: the byte of the write at which the owner dies; for ``fault`` the page, counted from
        the end of the log
    :ivar writes: number of complete writes of the append before
    :ivar filled: length of the log before the append, at least, in bytes
    """

    path: str
    writer: str
    order: str
    at: int
    writes: int = 0
    filled: int = 0
    body_bytes: int = 60

    def line(self) -> str:
        """Return the line of input of the program."""
        return json.dumps(attrs.asdict(self)) + "\n"


class DyingFiles(RealFileSystem):
    """Files that, once armed, store a write to a segment only in part, and kill the process.

    :ivar death: the death to come; ``None`` before :meth:`arm`
    """

    def __init__(self) -> None:
        super().__init__()
        self.death: Death | None = None
        self.left = 0
        self.maps: dict[str, tuple[int, mmap.mmap]] = {}

    def arm(self, death: Death) -> None:
        """Die in one of the next writes."""
        self.left, self.death = death.writes, death

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        in_log = path.name.isdigit() and path.parent.name in ("commitlog", "tmp")
        return cast(File, _DyingFile(file, self)) if in_log and write else file

    def store(self, data: Body, put: Callable[[int, Body], object]) -> None:
        """Store all of ``data`` by ``put``, or die."""
        death = self.death
        if death is None or self.left:
            if death is not None:
                self.left -= 1
            put(0, data)
            return
        if death.order == "skipped":
            self.arm(attrs.evolve(death, order="forward", at=sys.maxsize))
            return
        view = memoryview(data)
        for part in ORDERS[death.order](death.at):
            begin, end, _ = part.indices(len(view))
            if begin < end:
                put(begin, view[begin:end])
        os.kill(os.getpid(), signal.SIGKILL)


class _DyingFile:
    """A segment that is open for writing."""

    def __init__(self, file: File, files: DyingFiles) -> None:
        self._file, self._files = file, files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write_at(self, position: int, data: Body) -> None:
        def put(begin: int, part: Body) -> None:
            self._file.write_at(position + begin, part)

        self._files.store(data, put)

    def map(self, length: int, *, writable: bool, position: int = 0) -> mmap.mmap:
        if not writable:
            return self._file.map(length, writable=False, position=position)
        mapped = _DyingMap(self._file.fileno(), length, offset=position)
        mapped.files = self._files
        self._files.maps[self._file.path.name] = position, mapped
        return mapped


class _DyingMap(mmap.mmap):
    """A map of a segment."""

    files: DyingFiles

    def __setitem__(self, at: Any, data: Any) -> None:
        def put(begin: int, part: Body) -> None:
            first = at.start + begin
            super(_DyingMap, self).__setitem__(slice(first, first + len(part)), bytes(part))

        self.files.store(data, put)


def protect(mapped: mmap.mmap, page: int) -> None:
    """Make the next access to a page of ``mapped`` kill the process, by SIGSEGV."""
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + page * mmap.PAGESIZE
    failed = libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(mmap.PAGESIZE), 0)
    if failed:
        raise OSError(ctypes.get_errno(), "mprotect")


def message(number: int, body_bytes: int) -> Message:
    body = b"%04d" % number + b"." * (body_bytes - 4)
    return Message("orders", body, keys=f"k{number:04}", queue_id=0)


def settings(writer: str) -> dict[str, Any]:
    """Return the settings of a store whose acknowledged messages are in the files."""
    direct = {"buffer_bytes": 4096, "threads": 0}
    sections = {**SETTINGS["settings"], **({"direct": direct} if writer == "direct" else {})}
    flush = "group-commit" if writer in ("staged", "direct") else "timed"
    return {**SETTINGS, "writer": writer, "flush": flush, "settings": sections}


def die(death: Death, told: int) -> None:
    """Put, print the acknowledged offsets, and die in the next append; runs in a child process."""
    files = DyingFiles()
    # Compiled code does not use these files, but their maps: only a fault can kill it.
    accelerator = "auto" if death.order == "fault" else "none"
    store = lakelog.open(death.path, files=files, accelerator=accelerator, **settings(death.writer))
    acknowledged = [store.put(message(at, death.body_bytes)) for at in range(MADE)]
    while acknowledged[-1].end_offset < death.filled:
        acknowledged.append(store.put(message(len(acknowledged), death.body_bytes)))
    os.write(told, b" ".join(b"%d" % each.physical_offset for each in acknowledged) + b"\n")
    lost = [message(len(acknowledged) + at, death.body_bytes) for at in range(LOST)]
    if death.order == "fault":
        start, mapped = files.maps[f"{0:020}"]
        protect(mapped, (acknowledged[-1].end_offset - start) // mmap.PAGESIZE + death.at)
    else:
        files.arm(death)
    store.put_batch(lost)


def main() -> None:
    """Run one death after the other."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    told = sys.stdout.fileno()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                die(Death(**json.loads(line)), told)
            except BaseException:  # noqa: BLE001  # the child must not continue as the parent
                traceback.print_exc()
            os._exit(0)  # it was not killed, or failed to start
        status = os.waitpid(child, 0)[1]
        os.write(told, b"ended %d\n" % os.waitstatus_to_exitcode(status))
