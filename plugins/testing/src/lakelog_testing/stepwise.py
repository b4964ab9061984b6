"""Allocates the blocks of a segment for a writer under test, as a store does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.interfaces import Extendable, Sealable, Writer
from lakelog_testing.faultyfile import FaultyFile

STEP_BYTES: Final = 4096
"""Allocation step in bytes, unless the writer's alignment is larger."""


class Stepwise:
    """A segment writer whose file is allocated in steps, as in a store."""

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
        """Allocate the required blocks, then write."""
        end = position + len(data)
        if end > self._end:
            self._end = min(-(-end // self._step_bytes) * self._step_bytes, self._size_bytes)
            self._file.allocate(self._end)
            if isinstance(self._inner, Extendable):
                self._inner.extend(position, self._end)
        self._inner.write(position, data)

    def seal(self) -> None:
        """Seal the segment, if the writer supports it."""
        if isinstance(self._inner, Sealable):
            self._inner.seal()

    def finish(self) -> None:
        """Finish a full segment as a store does."""
        self.seal()
        self.commit()
        self.sync()
        self.close()

    def fails(self, position: int = 0) -> bool:
        """Whether a write at ``position``, or its commit or sync, fails."""
        try:
            self.write(position, b"record" * 100)
            self.commit()
            self.sync()
        except OSError:
            return True
        return False


def has_data(path: Path, position: int) -> bool:
    """Whether a file has data from ``position`` on, including written zeros."""
    with path.open("rb") as file, suppress(OSError):
        return os.lseek(file.fileno(), position, os.SEEK_DATA) >= position
    return False
