"""LMDB: number -> properties and body; a transaction for each put or batch."""

from __future__ import annotations

from itertools import count as count_from
from pathlib import Path

import lmdb

from tests.bench.content import properties

SETTINGS = (
    "sync=False, writemap, map_async (a process crash loses nothing); one transaction per put or "
    "batch, keys ascending with append"
)
_MAP_BYTES = 16 << 30  # address space, not disk


class Peer:
    def __init__(self) -> None:
        self._numbers = count_from()

    def open(self, directory: Path) -> None:
        self._env = lmdb.open(
            str(directory),
            map_size=_MAP_BYTES,
            sync=False,
            metasync=False,
            writemap=True,
            map_async=True,
        )

    def put(self, count: int, body: bytes) -> None:
        begin, numbers = self._env.begin, self._numbers
        for _ in range(count):
            with begin(write=True) as transaction:
                # Numbered inside the transaction: writers are in order, so keys ascend.
                number = next(numbers)
                transaction.put(number.to_bytes(8), properties(number) + body, append=True)

    def put_batch(self, count: int, batch_size: int, body: bytes) -> None:
        begin, numbers = self._env.begin, self._numbers
        for _ in range(count // batch_size):
            batch = [next(numbers) for _ in range(batch_size)]
            with begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(
                    [(number.to_bytes(8), properties(number) + body) for number in batch],
                    append=True,
                )

    def close(self) -> None:
        self._env.close()
