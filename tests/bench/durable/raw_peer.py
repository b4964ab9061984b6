"""The lower bound: prepared bytes written at ascending offsets of one file, then a sync.

Options: `direct` (O_DIRECT), `write_bytes` (size of a write; 0: one record), `sync_bytes` (bytes
per sync; 0: a sync per call), `written` (the file is filled first, so that a sync has no extents
to convert).
"""

from __future__ import annotations

import mmap
import os
from itertools import count as count_from
from pathlib import Path
from typing import Final

from tests.bench.content import record
from tests.bench.durable.work import Options

_FILE_BYTES: Final = 1 << 30
_PIECE_BYTES: Final = 16 << 20


class Peer:
    def __init__(self) -> None:
        self._places = count_from()
        self._unsynced_bytes = 0

    def open(self, directory: Path, options: Options) -> None:
        self._sync_bytes = options.get("sync_bytes", 0)
        flags = os.O_RDWR | os.O_CREAT | (os.O_DIRECT if options.get("direct") else 0)
        self._file = os.open(directory / "log", flags)
        os.posix_fallocate(self._file, 0, _FILE_BYTES)
        if options.get("written"):
            zeros = mmap.mmap(-1, _PIECE_BYTES)
            for place in range(0, _FILE_BYTES, _PIECE_BYTES):
                os.pwrite(self._file, zeros, place)
        os.fsync(self._file)
        self._block = _aligned(options.get("write_bytes", 0))

    def put(self, body: bytes) -> None:
        self._write(self._block or record(1_000_000, 0, body))

    def put_batch(self, size: int, body: bytes) -> None:
        self._write(self._block or record(1_000_000, 0, body) * size)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, block: mmap.mmap | bytes) -> None:
        size = len(block)
        os.pwrite(self._file, block, next(self._places) % (_FILE_BYTES // size) * size)
        self._unsynced_bytes += size
        if self._unsynced_bytes >= self._sync_bytes:
            os.fdatasync(self._file)
            self._unsynced_bytes = 0


def _aligned(size: int) -> mmap.mmap | None:
    """Return incompressible pages in page-aligned memory, as O_DIRECT requires."""
    if not size:
        return None
    block = mmap.mmap(-1, size)
    block.write(os.urandom(size))
    return block
