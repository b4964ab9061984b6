"""RocksDB: all values in the order of their keys; each block and log record has a checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

from tests.bench.comparison.reading import Report


class Reader:
    def __init__(self, directory: Path, _options: Mapping[str, Any], report: Report) -> None:
        self._report = report
        self._db = Rdict(str(directory), Options(raw_mode=True))

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Read forward to the end or to damage; after damage also backward from the end."""
        cursor = self._db.iter()
        cursor.seek_to_first()
        last = b""
        while cursor.valid():
            last = cursor.key()
            yield 0, cursor.value()
            cursor.next()
        try:
            cursor.status()
        except Exception as error:  # noqa: BLE001  # the package has no class of its own
            self._report(str(error))
            yield from ((0, value) for value in reversed(list(self._behind(last))))

    def _behind(self, last: bytes) -> Iterator[bytes]:
        cursor = self._db.iter()
        cursor.seek_to_last()
        while cursor.valid() and cursor.key() > last:
            yield cursor.value()
            cursor.prev()

    def check(self) -> None:
        pass
