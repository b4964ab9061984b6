"""A file that records its calls and fails on request, and a comparison of long byte strings."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from lakelog.files.filesystem import File, FileIdentity, FileMap
from lakelog.message import Body


class FaultyFile:
    """A :class:`~lakelog.files.filesystem.File` around another.

    :ivar writes: position and length of every ``write_at``
    :ivar addresses: memory address of the bytes of each write
    :ivar syncs: number of calls of ``sync``
    :ivar meanwhile: called once, during the next ``write_at``
    :ivar failing: names of methods that fail with ``EIO`` from now on
    :ivar allocated_end: end of the range allocated through it
    :ivar trespasses: writes and writable maps beyond that end
    """

    def __init__(self, inner: File) -> None:
        self._inner = inner
        self.writes: list[tuple[int, int]] = []
        self.addresses: list[int] = []
        self.meanwhile: Callable[[], object] | None = None
        self.syncs = 0
        self.failing: set[str] = set()
        self.allocated_end = 0
        self.trespasses: list[str] = []

    @property
    def path(self) -> Path:
        """Its path."""
        return self._inner.path

    def fileno(self) -> int:
        """The descriptor."""
        return self._inner.fileno()

    def size(self) -> int:
        """Its length."""
        return self._inner.size()

    def read_at(self, position: int, length: int) -> bytes:
        """Read, or fail."""
        self._check("read_at")
        return self._inner.read_at(position, length)

    def write_at(self, position: int, data: Body) -> None:
        """Write, or fail."""
        self.writes.append((position, len(data)))
        self.addresses.append(_address(data))
        self._check("write_at")
        self._note("write", position + len(data))
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self._inner.write_at(position, data)

    def allocate(self, length: int, position: int = 0) -> None:
        """Allocate, or fail."""
        self._check("allocate")
        self._inner.allocate(length, position)
        self.allocated_end = max(self.allocated_end, position + length)

    def truncate(self, length: int) -> None:
        """Truncate, or fail."""
        self._check("truncate")
        self._inner.truncate(length)

    def sync(self) -> None:
        """Sync, or fail."""
        self.syncs += 1
        self._check("sync")
        self._inner.sync()

    def stamp(self) -> FileIdentity | None:
        """Stamp, or fail."""
        self._check("stamp")
        return self._inner.stamp()

    def next_data(self, position: int) -> int | None:
        """Look for data, or fail."""
        self._check("next_data")
        return self._inner.next_data(position)

    def map(self, length: int, *, writable: bool, position: int = 0) -> FileMap:
        """Map, or fail."""
        self._check("map")
        if writable:
            self._note("map", position + length)
        return self._inner.map(length, writable=writable, position=position)

    def close(self) -> None:
        """Close; never fails."""
        self._inner.close()

    def _note(self, what: str, end: int) -> None:
        if end > self.allocated_end:
            self.trespasses.append(f"{what} up to {end}, allocated up to {self.allocated_end}")

    def _check(self, name: str) -> None:
        if name in self.failing:
            raise OSError(errno.EIO, "this test's disk fails", str(self.path))


def _address(data: Body) -> int:
    """The memory address of ``data``."""
    return int(np.frombuffer(data, np.uint8).ctypes.data) if len(data) else 0


Bytes: TypeAlias = "bytes | memoryview"
_SHOWN_BYTES: Final = 16


def assert_same(found: Bytes, expected: Bytes) -> None:
    """Raise ``AssertionError`` with the first difference if ``found`` is not ``expected``.

    A plain ``assert`` with pytest's full explanation (``-v``, or ``CI`` set) takes minutes for a
    segment.
    """
    if found == expected:
        return
    at = first_difference(found, expected)
    here, due = (bytes(each[at : at + _SHOWN_BYTES]) for each in (found, expected))
    lengths = f"{len(found)} bytes, {len(expected)} expected"
    raise AssertionError(f"{lengths}; at {at} is {here!r}, expected {due!r}")


def first_difference(one: Bytes, other: Bytes) -> int:
    """The position of the first difference, or the length of the shorter one."""
    pairs = zip(one, other, strict=False)
    differing = (at for at, (mine, yours) in enumerate(pairs) if mine != yours)
    return next(differing, min(len(one), len(other)))
