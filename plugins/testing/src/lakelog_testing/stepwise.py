"""Allocates the blocks of a segment for a writer under test, as a store does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.interfaces import Extendable, Sealable, Writer
from lakelog_testing.faultyfile import FaultyFile

STEP_BYTES: Final = 4096
"""Blocks come so many bytes at a time, or in units of the writer's alignment."""


class Stepwise:
    """A segment writer whose file gets blocks in steps, as in a store."""

    def __init__(self, writer: Writer, file: FaultyFile, size_bytes: int, position: int) -> None:
        self._inner = writer.open(file, size_bytes, position)
        self._size_bytes = size_bytes
        self._file = file
        self._step_bytes = max(STEP_BYTES, writer.traits.alignment_bytes)
        self._end = 0
        self.view = self._inner.view
        self.commit = self._inner.commit
        self.sync = self._inner.sync
        self.close = self._inner.close

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Allocate what is needed before."""
        end = position + len(data)
        if end > self._end:
            self._end = min(-(-end // self._step_bytes) * self._step_bytes, self._size_bytes)
            self._file.allocate(self._end)
            if isinstance(self._inner, Extendable):
                self._inner.extend(position, self._end)
        self._inner.write(position, data)

    def seal(self) -> None:
        """For writers that want to hear of it."""
        if isinstance(self._inner, Sealable):
            self._inner.seal()

    def finish(self) -> None:
        """What a store does with a full segment."""
        self.seal()
        self.commit()
        self.sync()
        self.close()

    def fails(self, position: int = 0) -> bool:
        """Whether a write at ``position`` fails, or what makes it durable."""
        try:
            self.write(position, b"record" * 100)
            self.commit()
            self.sync()
        except OSError:
            return True
        return False


def has_data(path: Path, position: int) -> bool:
    """Whether anything was written to a file from ``position`` on, be it zeros."""
    with path.open("rb") as file, suppress(OSError):
        return os.lseek(file.fileno(), position, os.SEEK_DATA) >= position
    return False
