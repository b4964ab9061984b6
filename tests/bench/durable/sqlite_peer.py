"""SQLite; a row for each message, with tag and key in separate columns.

Options: `journal`: `WAL` or `DELETE`; `synchronous`: by default `FULL`. Threads share one
connection under a lock; a write waits for other processes.
"""

from __future__ import annotations

import sqlite3
from itertools import count as count_from
from pathlib import Path
from threading import Lock

from tests.bench.content import QUEUES, TAGS, TOPIC, key
from tests.bench.durable.work import Options

_PATIENCE_SECONDS = 60.0
_INSERT = "INSERT INTO messages (topic, queue_id, tags, keys, body) VALUES (?, ?, ?, ?, ?)"


class Peer:
    def __init__(self) -> None:
        self._numbers = count_from()
        self._lock = Lock()

    def open(self, directory: Path, options: Options) -> None:
        self._connection = sqlite3.connect(
            directory / "messages.db",
            timeout=_PATIENCE_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        execute = self._connection.execute
        execute(f"PRAGMA journal_mode={options['journal']}")
        execute(f"PRAGMA synchronous={options.get('synchronous', 'FULL')}")
        execute(
            "CREATE TABLE IF NOT EXISTS messages (number INTEGER PRIMARY KEY, topic TEXT, "
            "queue_id INTEGER, tags TEXT, keys TEXT, body BLOB)"
        )

    def put(self, body: bytes) -> None:
        row = self._row(body)
        with self._lock:
            self._connection.execute(_INSERT, row)

    def put_batch(self, size: int, body: bytes) -> None:
        rows = [self._row(body) for _ in range(size)]
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, rows)
            self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def _row(self, body: bytes) -> tuple[str, int, str, str, bytes]:
        number = next(self._numbers)
        return TOPIC, number % QUEUES, TAGS, key(number), body
