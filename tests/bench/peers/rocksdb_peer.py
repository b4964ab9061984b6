"""RocksDB through rocksdict: number -> properties and body."""

from __future__ import annotations

from itertools import count as count_from
from pathlib import Path

from rocksdict import DBCompressionType, Options, Rdict, WriteBatch

from tests.bench.content import properties

SETTINGS = "write-ahead log on, not synced (its default), no compression; a WriteBatch per batch"


class Peer:
    def __init__(self) -> None:
        self._numbers = count_from()

    def open(self, directory: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.none())
        self._db = Rdict(str(directory), options)

    def put(self, count: int, body: bytes) -> None:
        put, numbers = self._db.put, self._numbers
        for _ in range(count):
            number = next(numbers)
            put(number.to_bytes(8), properties(number) + body)

    def put_batch(self, count: int, batch_size: int, body: bytes) -> None:
        numbers = self._numbers
        for _ in range(count // batch_size):
            batch = WriteBatch(raw_mode=True)
            for _ in range(batch_size):
                number = next(numbers)
                batch.put(number.to_bytes(8), properties(number) + body)
            self._db.write(batch)

    def close(self) -> None:
        self._db.close()
