"""SQLite: the table in the order of its numbers, and ``PRAGMA integrity_check``."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.comparison.reading import Report


class Reader:
    def __init__(self, directory: Path, _options: Mapping[str, Any], report: Report) -> None:
        self._report = report
        self._connection = sqlite3.connect(directory / "messages.db", isolation_level=None)
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()

    def messages(self) -> Iterator[tuple[int, bytes]]:
        try:
            for (body,) in self._connection.execute("SELECT body FROM messages ORDER BY number"):
                yield 0, body if isinstance(body, bytes) else str(body).encode()
        except sqlite3.DatabaseError as error:
            self._report(str(error))

    def check(self) -> None:
        for (line,) in self._connection.execute("PRAGMA integrity_check"):
            if line != "ok":
                self._report(f"integrity_check: {line}")
