"""LMDB with its default, synchronous commits: number -> properties and body.

Options: `grouped`: waiting threads share a transaction, see `gathering`; `sync`: whether a commit
waits for the disk; `shared`: other processes write too, so numbers continue after the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as count_from
from pathlib import Path

import lmdb

from tests.bench.content import properties
from tests.bench.durable.gathering import Gathering
from tests.bench.durable.work import Options

MAP_BYTES = 64 << 30  # address space, not disk


class Peer:
    def __init__(self) -> None:
        self._numbers = count_from()

    def open(self, directory: Path, options: Options) -> None:
        sync = options.get("sync", True)
        self._env = lmdb.open(str(directory), map_size=MAP_BYTES, max_spare_txns=4, sync=sync)
        self._is_shared = options.get("shared", False)
        if options.get("grouped"):
            self.put = Gathering(self._commit).put  # type: ignore[method-assign]  # grouped, as asked for

    def put(self, body: bytes) -> None:
        self._commit([body])

    def put_batch(self, size: int, body: bytes) -> None:
        self._commit([body] * size)

    def close(self) -> None:
        self._env.close()

    def _commit(self, bodies: Sequence[bytes]) -> None:
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            # Numbered inside the transaction: writers are in order, so keys ascend.
            if self._is_shared:
                at = int.from_bytes(cursor.key()) + 1 if cursor.last() else 0
                self._numbers = count_from(at)
            numbers = [next(self._numbers) for _ in bodies]
            cursor.putmulti(
                [
                    (number.to_bytes(8), properties(number) + body)
                    for number, body in zip(numbers, bodies, strict=True)
                ],
                append=True,
            )
