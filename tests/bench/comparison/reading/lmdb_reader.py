"""LMDB: the tree in the order of its keys; it has no checksums, and no check of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import lmdb

from tests.bench.comparison.reading import Report
from tests.bench.durable.lmdb_peer import MAP_BYTES


class Reader:
    def __init__(self, directory: Path, _options: Mapping[str, Any], _report: Report) -> None:
        self._env = lmdb.open(str(directory), map_size=MAP_BYTES)

    def messages(self) -> Iterator[tuple[int, bytes]]:
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            for value in cursor.iternext(keys=False, values=True):
                yield 0, value

    def check(self) -> None:
        pass
