"""The stores that are measured, each with the same methods; packages are imported when opened."""

from __future__ import annotations

import mmap
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib import import_module
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

import lakelog
from lakelog import Message, MessageColumns, PutResult
from tests.bench.content import QUEUES, TAGS, TOPIC, key, properties, record
from tests.bench.durable.work import Options
from tests.bench.model import CannotRunError

MAP_BYTES: Final = 64 << 30  # address space, not disk
_PATIENCE_SECONDS: Final = 60.0
_INSERT: Final = "INSERT INTO messages (topic, queue_id, tags, keys, body) VALUES (?, ?, ?, ?, ?)"
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS messages (number INTEGER PRIMARY KEY, topic TEXT, "
    "queue_id INTEGER, tags TEXT, keys TEXT, body BLOB)"
)
_FILE_BYTES: Final = 1 << 30
_PIECE_BYTES: Final = 16 << 20


class Peer:
    """A store; a call returns when its messages are as durable as the options say.

    `put` and `put_batch` are called from several threads. Numbers of messages go on from call to
    call, so that keys are unique.
    """

    package: str | None = None

    def __init__(self) -> None:
        self.numbers = count_from()

    def open(self, directory: Path, options: Options) -> None:
        """Create the store in an empty directory, or open it."""
        raise NotImplementedError

    def put(self, body: bytes) -> object:
        """Store one message."""
        raise NotImplementedError

    def put_batch(self, size: int, body: bytes) -> object:
        """Store ``size`` messages in one call."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the store; not measured."""
        raise NotImplementedError


class Lakelog(Peer):
    """Queues and index are built meanwhile.

    Options: `producers`: put by one of each queue, not by the store; others are `lakelog.open`'s.
    """

    def open(self, directory: Path, options: Options) -> None:
        given = dict(options)
        by_producers = given.pop("producers", False)
        self._store = lakelog.open(directory, **given)
        if by_producers:
            puts = [self._store.producer(TOPIC, tags=TAGS, queue=at).put for at in range(QUEUES)]

            def put(body: bytes) -> object:
                number = next(self.numbers)
                return puts[number % QUEUES](body, key(number))

            self.put = put  # type: ignore[method-assign]  # as asked for

    def put(self, body: bytes) -> object:
        return self._store.put(self._message(body))

    def put_async(self, body: bytes) -> Future[PutResult]:
        return self._store.put_async(self._message(body))

    def put_batch(self, size: int, body: bytes) -> object:
        numbers = list(islice(self.numbers, size))
        queue_id = numbers[0] // size % QUEUES
        return self._store.put_batch(
            [Message(TOPIC, body, tags=TAGS, keys=key(at), queue_id=queue_id) for at in numbers]
        )

    def put_columns(self, size: int, body: bytes) -> object:
        numbers = list(islice(self.numbers, size))
        queue_id, keys = numbers[0] // size % QUEUES, [key(each) for each in numbers]
        return self._store.put_batch(MessageColumns(TOPIC, [body] * size, queue_id, TAGS, keys))

    def close(self) -> None:
        self._store.close()

    def _message(self, body: bytes) -> Message:
        number = next(self.numbers)
        return Message(TOPIC, body, tags=TAGS, keys=key(number), queue_id=number % QUEUES)


class Raw(Peer):
    """The lower bound: prepared bytes written at ascending offsets of one file, then a sync.

    Options: `direct` (O_DIRECT), `write_bytes` (size of a write; 0: one record), `sync_bytes`
    (bytes per sync; 0: a sync per call; ``None``: no sync), `written` (the file is filled first, so
    that a sync has no extents to convert).
    """

    def open(self, directory: Path, options: Options) -> None:
        self._sync_bytes: int | None = options.get("sync_bytes", 0)
        self._unsynced_bytes = 0
        flags = os.O_RDWR | os.O_CREAT | (os.O_DIRECT if options.get("direct") else 0)
        self._file = os.open(directory / "log", flags)
        os.posix_fallocate(self._file, 0, _FILE_BYTES)
        if options.get("written"):
            zeros = mmap.mmap(-1, _PIECE_BYTES)
            for place in range(0, _FILE_BYTES, _PIECE_BYTES):
                os.pwrite(self._file, zeros, place)
        os.fsync(self._file)
        self._block: mmap.mmap | None = None
        if size := options.get("write_bytes", 0):
            self._block = mmap.mmap(-1, size)  # aligned to pages, as O_DIRECT wants it
            self._block.write(os.urandom(size))
        self._records = dict[tuple[int, int], bytes]()

    def put(self, body: bytes) -> None:
        self.put_batch(1, body)

    def put_batch(self, size: int, body: bytes) -> None:
        block = self._block or self._records.get((size, len(body)))
        if block is None:
            block = self._records[size, len(body)] = record(1_000_000, 0, body) * size
        length = len(block)
        os.pwrite(self._file, block, next(self.numbers) % (_FILE_BYTES // length) * length)
        self._unsynced_bytes += length
        if self._sync_bytes is not None and self._unsynced_bytes >= self._sync_bytes:
            os.fdatasync(self._file)
            self._unsynced_bytes = 0

    def close(self) -> None:
        os.close(self._file)


class Lmdb(Peer):
    """Number -> properties and body.

    Options: `grouped`: waiting threads share a transaction; `sync`: whether a commit waits for the
    disk, as it does by default; `shared`: other processes write too, so numbers continue after the
    last one; others are LMDB's.
    """

    package = "lmdb"

    def open(self, directory: Path, options: Options) -> None:
        import lmdb

        given = {"sync": True, **options}
        self._is_shared = given.pop("shared", False)
        if given.pop("grouped", False):
            self.put = Gathering(self._commit).put  # type: ignore[method-assign]  # as asked for
        self._env = lmdb.open(str(directory), map_size=MAP_BYTES, max_spare_txns=4, **given)

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
                self.numbers = count_from(at)
            numbers = islice(self.numbers, len(bodies))
            cursor.putmulti(
                [
                    (number.to_bytes(8), properties(number) + body)
                    for body, number in zip(bodies, numbers, strict=True)
                ],
                append=True,
            )


class RocksDb(Peer):
    """Through rocksdict: number -> properties and body. Numbers continue after the last one.

    Options: `sync`: whether each write of its log waits for the disk; by default it does here.
    """

    package = "rocksdict"

    def open(self, directory: Path, options: Options) -> None:
        import rocksdict

        self._batch: Any = rocksdict.WriteBatch
        settings = rocksdict.Options(raw_mode=True)
        settings.create_if_missing(True)
        settings.set_compression_type(rocksdict.DBCompressionType.none())
        self._db = rocksdict.Rdict(str(directory), settings)
        synced = rocksdict.WriteOptions()
        synced.sync = options.get("sync", True)
        self._db.set_write_options(synced)
        last = self._db.iter()
        last.seek_to_last()
        self.numbers = count_from(int.from_bytes(last.key()) + 1 if last.valid() else 0)

    def put(self, body: bytes) -> None:
        number = next(self.numbers)
        self._db.put(number.to_bytes(8), properties(number) + body)

    def put_batch(self, size: int, body: bytes) -> None:
        batch = self._batch(raw_mode=True)
        for number in islice(self.numbers, size):
            batch.put(number.to_bytes(8), properties(number) + body)
        self._db.write(batch)

    def close(self) -> None:
        self._db.close()


class Sqlite(Peer):
    """A row for each message, with tag and key in separate columns.

    Options: `journal`: `WAL` or `DELETE`; `synchronous`: by default `FULL`. Threads share one
    connection under a lock; a write waits for other processes.
    """

    def open(self, directory: Path, options: Options) -> None:
        self._lock = Lock()
        self._connection = sqlite3.connect(
            directory / "messages.db",
            timeout=_PATIENCE_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        execute = self._connection.execute
        execute(f"PRAGMA journal_mode={options['journal']}")
        execute(f"PRAGMA synchronous={options.get('synchronous', 'FULL')}")
        execute(_TABLE)

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
        number = next(self.numbers)
        return TOPIC, number % QUEUES, TAGS, key(number), body


PEERS: Final[dict[str, type[Peer]]] = {
    "lakelog": Lakelog,
    "raw": Raw,
    "lmdb": Lmdb,
    "rocksdb": RocksDb,
    "sqlite": Sqlite,
}


def peer(name: str) -> Peer:
    """Return a store that is to be opened; raises CannotRunError if its package is missing."""
    found = PEERS[name]
    try:
        if found.package is not None:
            import_module(found.package)
    except ImportError as missing:
        raise CannotRunError(str(missing)) from missing
    return found()


class Gathering:
    """Group commit for stores without one: the thread that opens a group commits it.

    Overlapping calls share a commit; a call returns after the commit of its body.
    """

    def __init__(self, commit: Callable[[Sequence[bytes]], None]) -> None:
        self._commit = commit
        self._group: tuple[list[bytes], Event] | None = None
        self._guard = Lock()
        self._turn = Lock()

    def put(self, body: bytes) -> None:
        """Join the open group and wait for its commit, or open one and commit it."""
        with self._guard:
            leads = self._group is None
            if self._group is None:
                self._group = [], Event()
            bodies, committed = self._group
            bodies.append(body)
        if not leads:
            committed.wait()
            return
        with self._turn:
            with self._guard:
                self._group = None
            self._commit(bodies)
        committed.set()
