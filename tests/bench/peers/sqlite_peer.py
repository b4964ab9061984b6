"""SQLite with a write-ahead log: a row for each message, with tag and key in separate columns."""

from __future__ import annotations

import sqlite3
from itertools import count as count_from
from pathlib import Path
from threading import Lock

from tests.bench.content import QUEUES, TAGS, TOPIC, key

SETTINGS = (
    "journal_mode=WAL, synchronous=OFF; one transaction per put or batch; one connection, which "
    "threads share under a lock; no index on the key"
)
_INSERT = "INSERT INTO messages (topic, queue_id, tags, keys, body) VALUES (?, ?, ?, ?, ?)"


class Peer:
    def __init__(self) -> None:
        self._numbers = count_from()
        self._lock = Lock()

    def open(self, directory: Path) -> None:
        self._connection = sqlite3.connect(
            directory / "messages.db", isolation_level=None, check_same_thread=False
        )
        execute = self._connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=OFF")
        execute(
            "CREATE TABLE messages (number INTEGER PRIMARY KEY, topic TEXT, queue_id INTEGER, "
            "tags TEXT, keys TEXT, body BLOB)"
        )

    def put(self, count: int, body: bytes) -> None:
        execute, lock = self._connection.execute, self._lock
        for _ in range(count):
            row = self._row(body)
            with lock:
                execute(_INSERT, row)

    def put_batch(self, count: int, batch_size: int, body: bytes) -> None:
        connection = self._connection
        for _ in range(count // batch_size):
            connection.execute("BEGIN")
            connection.executemany(_INSERT, [self._row(body) for _ in range(batch_size)])
            connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def _row(self, body: bytes) -> tuple[str, int, str, str, bytes]:
        number = next(self._numbers)
        return TOPIC, number % QUEUES, TAGS, key(number), body
