"""RocksDB through rocksdict: number -> properties and body. Numbers continue after the last one.

Options: `sync`: whether each write of its log waits for the disk; by default it does here.
"""

from __future__ import annotations

from itertools import count as count_from
from itertools import islice
from pathlib import Path

from rocksdict import DBCompressionType, Rdict, WriteBatch, WriteOptions
from rocksdict import Options as RocksOptions

from tests.bench.content import properties
from tests.bench.durable.work import Options


class Peer:
    def open(self, directory: Path, given: Options) -> None:
        options = RocksOptions(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.none())
        self._db = Rdict(str(directory), options)
        synced = WriteOptions()
        synced.sync = given.get("sync", True)
        self._db.set_write_options(synced)
        last = self._db.iter()
        last.seek_to_last()
        self._numbers = count_from(int.from_bytes(last.key()) + 1 if last.valid() else 0)

    def put(self, body: bytes) -> None:
        number = next(self._numbers)
        self._db.put(number.to_bytes(8), properties(number) + body)

    def put_batch(self, size: int, body: bytes) -> None:
        batch = WriteBatch(raw_mode=True)
        for number in islice(self._numbers, size):
            batch.put(number.to_bytes(8), properties(number) + body)
        self._db.write(batch)

    def close(self) -> None:
        self._db.close()
