"""The lower bound: prepared records, written at ascending offsets of an allocated file."""

from __future__ import annotations

import os
from itertools import count as count_from
from pathlib import Path

from tests.bench.content import record

SETTINGS = "os.pwrite of a ready-made record (or of a batch of them) into a fallocated file"
_FILE_BYTES = 1 << 30


class Peer:
    def __init__(self) -> None:
        self._places = count_from()

    def open(self, directory: Path) -> None:
        self._file = os.open(directory / "log", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._file, 0, _FILE_BYTES)

    def put(self, count: int, body: bytes) -> None:
        self._write(record(1_000_000, 0, body), count)

    def put_batch(self, count: int, batch_size: int, body: bytes) -> None:
        self._write(record(1_000_000, 0, body) * batch_size, count // batch_size)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, block: bytes, times: int) -> None:
        file, places, size = self._file, self._places, len(block)
        for _ in range(times):
            os.pwrite(file, block, next(places) * size)
