"""RocksDB: all values in the order of their keys; each block and log record has a checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

from tests.bench.comparison.reading import Report


class Reader:
    def __init__(self, directory: Path, _options: Mapping[str, Any], _report: Report) -> None:
        self._db = Rdict(str(directory), Options(raw_mode=True))

    def messages(self) -> Iterator[tuple[int, bytes]]:
        for value in self._db.values():
            yield 0, value

    def check(self) -> None:
        pass
