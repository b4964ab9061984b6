"""The SQLite database ``lakelog/groups.sqlite``: opening it, and its transactions.

With a write-ahead log and ``synchronous = NORMAL`` a kill loses nothing, and a power cut only the
newest transactions (sqlite.org/pragma.html).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final

from lakelog.errors import StoreClosed, StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog_queues.groups.members import MemberLocks

DATABASE_FILE: Final = "groups.sqlite"
_VERSION: Final = 1
_WAIT_S: Final = 60.0
"""Longest wait for transactions of other members."""
_SCHEMA: Final = (
    "CREATE TABLE home (inode INTEGER NOT NULL)",
    "CREATE TABLE members (number INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, "
    "subscription TEXT NOT NULL, seen_ms INTEGER NOT NULL)",
    "CREATE TABLE queues (scope TEXT, topic TEXT, queue INTEGER, next INTEGER NOT NULL, "
    "stored INTEGER, intended INTEGER, PRIMARY KEY (scope, topic, queue)) WITHOUT ROWID",
    "CREATE TABLE handed (scope TEXT, topic TEXT, queue INTEGER, offset INTEGER, "
    "member INTEGER NOT NULL, lease INTEGER NOT NULL, attempt INTEGER NOT NULL, "
    "visible_ms INTEGER NOT NULL, returned INTEGER NOT NULL, "
    "PRIMARY KEY (scope, topic, queue, offset)) WITHOUT ROWID",
    "CREATE INDEX handed_visible ON handed (scope, visible_ms)",
)
_log = logging.getLogger("lakelog")
_creating = Lock()
_FORKED: Final[list[sqlite3.Connection]] = []
"""Connections of the parent in a forked child, which must not even be closed there."""


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)


def _version(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def _inode(path: Path) -> int:
    return path.stat().st_ino


class GroupDatabase:
    """One connection; thread-safe."""

    def __init__(self, files: FileSystem, path: Path, locks: MemberLocks) -> None:
        """Open the database of the store directory ``path``, or create it.

        Raises :class:`~lakelog.errors.StoreError` for a file that is no such database.
        """
        self.path = path / OWN_DIR / DATABASE_FILE
        self._lock = Lock()
        self._closed = False
        with locks.process_lock, self._failing():
            with _creating:
                self._create(files)
            self._connection = _connect(self.path)
            try:
                self._prepare()
            except BaseException:  # Ctrl-C too
                self._connection.close()
                raise

    def _create(self, files: FileSystem) -> None:
        """Create an empty file, also in place of a copy.

        A copy of a file in use may lack a part of its transactions, so that messages would be lost.
        """
        if self.path.exists():
            with closing(_connect(self.path)) as connection:
                is_known = _version(connection) == _VERSION
                homes = connection.execute("SELECT inode FROM home") if is_known else ()
                is_copy = any(home != _inode(self.path) for (home,) in homes)
            if not is_copy:
                return
            _log.warning("%s: it is a copy; groups continue at their committed offsets", self.path)
            for suffix in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    files.unlink(self.path.with_name(self.path.name + suffix))
        # Not if it exists: closing a descriptor drops the locks of SQLite in this process.
        files.open(self.path, write=True, create=True).close()

    def _prepare(self) -> None:
        run, version = self._connection.execute, _version(self._connection)
        if version not in (0, _VERSION):
            raise StoreError(
                f"it has version {version} and this lakelog knows {_VERSION}; use the lakelog that "
                "wrote it",
                path=self.path,
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        if not version:
            run("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                run(statement)
            run("INSERT INTO home VALUES (?)", (_inode(self.path),))
            run(f"PRAGMA user_version = {_VERSION}")
            run("COMMIT")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Read and write; all or nothing."""
        with self._using() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:  # Ctrl-C too
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    def rows(self, statement: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The rows of one SELECT."""
        with self._using() as cursor:
            return cursor.execute(statement, arguments).fetchall()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            if self._closed:
                raise StoreClosed("the consumer is closed", path=self.path)
            with self._failing(), closing(self._connection.cursor()) as cursor:
                yield cursor

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"the state of consumer groups cannot be used ({error}); check permissions and "
                "free space. If the file is damaged, delete it while no consumer is open: groups "
                "then continue at their committed offsets",
                path=self.path,
            ) from error

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._connection.close()

    def forked(self) -> None:
        """Give up the parent's connection in a forked child; other threads' locks may be held."""
        if not self._closed:
            self._closed = True
            _FORKED.append(self._connection)
        self._lock = Lock()
