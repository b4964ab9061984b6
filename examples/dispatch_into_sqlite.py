"""How does a dispatcher derive its own data from the log, here a table in SQLite?

One transaction has the rows and the position up to which the log was dispatched. So a repeated
run changes nothing, and the dispatcher continues at that position.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import lakelog
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import Context, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl

FOLDER = "sqlite"
TABLES = """
CREATE TABLE IF NOT EXISTS messages (
    place INTEGER PRIMARY KEY, topic TEXT, queue_id INTEGER, tags TEXT, body BLOB
);
CREATE TABLE IF NOT EXISTS position (id INTEGER PRIMARY KEY CHECK (id = 0), end_offset INTEGER);
"""


class SqliteDispatcher:
    """Writes each message into the table ``messages`` of ``sqlite/messages.db``.

    :ivar directories: the folders that `lakelog rebuild` removes before it dispatches the log again
    """

    directories: Sequence[str] = (FOLDER,)

    def __init__(self, path: Path, *, read_only: bool) -> None:
        """Open the database; in memory for a store that is open for reading."""
        if not read_only:
            (path / FOLDER).mkdir(parents=True, exist_ok=True)
        database = ":memory:" if read_only else path / FOLDER / "messages.db"
        self._lock = Lock()  # `flush` is called in another thread
        self._rows = sqlite3.connect(database, check_same_thread=False)
        self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.executescript(TABLES)

    def resume(self, minimum: int, end: int) -> int:
        """Remove rows behind the end of the log; return the offset from which to dispatch."""
        known = self._rows.execute("SELECT end_offset FROM position").fetchone()
        self.truncate(end)
        return max(minimum, min(known[0], end)) if known else minimum

    def dispatch(self, batch: RecordBatch) -> None:
        """Insert a run of messages; a row that exists is replaced by the same row."""
        if not len(batch):
            return
        messages = [batch.message(at) for at in range(len(batch))]
        rows = [(m.physical_offset, m.topic, m.queue_id, m.tags, m.body) for m in messages]
        with self._lock, self._rows:
            self._rows.executemany("INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?)", rows)
            self._move(batch.end_offset)

    def _move(self, end_offset: int) -> None:
        self._rows.execute(
            "INSERT INTO position VALUES (0, ?1)"
            " ON CONFLICT (id) DO UPDATE SET end_offset = max(end_offset, ?1)",
            [end_offset],
        )

    def truncate(self, end_offset: int) -> None:
        """Remove the rows of records at or behind ``end_offset``."""
        with self._lock, self._rows:
            self._rows.execute("DELETE FROM messages WHERE place >= ?", [end_offset])
            self._rows.execute("UPDATE position SET end_offset = min(end_offset, ?)", [end_offset])

    def flush(self) -> None:
        """Make the rows durable; commits alone need not be."""
        with self._lock:
            self._rows.execute("PRAGMA wal_checkpoint(FULL)")

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._rows.close()

    def rows(self) -> list[tuple[object, ...]]:
        """Return all rows, in log order."""
        return self._rows.execute("SELECT * FROM messages ORDER BY place").fetchall()


def make(_settings: NoSettings, context: Context) -> SqliteDispatcher:
    """Make the dispatcher when a store opens."""
    return SqliteDispatcher(context.path, read_only=context.read_only)


@hookimpl
def lakelog_dispatchers() -> Sequence[Factory]:
    """Offer it; this module is the plugin."""
    return [Factory(Kind.DISPATCHER, "sqlite", NoSettings, make)]


def main(folder: str) -> None:
    """Put messages, and query SQLite."""
    with lakelog.open(
        folder,
        plugins=[sys.modules[__name__]],
        dispatchers=["sqlite"],
        segment_size_bytes="1MiB",
    ) as store:
        for number in range(100):
            store.put(lakelog.Message(("orders", "visits")[number % 2], b"x" * number))
        store.wait_dispatched()
    database = sqlite3.connect(f"{folder}/{FOLDER}/messages.db")
    query = "SELECT topic, count(*), sum(length(body)) FROM messages GROUP BY topic"
    for topic, count, size in database.execute(query):
        print(f"{topic}: {count} messages, {size} bytes")
    database.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
