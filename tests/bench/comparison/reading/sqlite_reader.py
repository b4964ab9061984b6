"""SQLite: the table in the order of its numbers, and ``PRAGMA integrity_check``."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.bench.comparison.reading import Report

_SELECT: Final = "SELECT number, CAST(body AS BLOB) FROM messages"


class Reader:
    def __init__(self, directory: Path, _options: Mapping[str, Any], report: Report) -> None:
        self._report = report
        self._connection = sqlite3.connect(directory / "messages.db", isolation_level=None)
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Read forward to the end or to damage; after damage also backward from the end."""
        last = -1
        try:
            for number, body in self._connection.execute(f"{_SELECT} ORDER BY number"):
                last = number
                yield 0, body
        except sqlite3.DatabaseError as error:
            self._report(str(error))
            yield from ((0, body) for body in reversed(list(self._behind(last))))

    def _behind(self, last: int) -> Iterator[bytes]:
        with suppress(sqlite3.DatabaseError):
            command = f"{_SELECT} WHERE number > ? ORDER BY number DESC"
            for _, body in self._connection.execute(command, (last,)):
                yield body

    def check(self) -> None:
        for (line,) in self._connection.execute("PRAGMA integrity_check"):
            if line != "ok":
                self._report(f"integrity_check: {line}")
