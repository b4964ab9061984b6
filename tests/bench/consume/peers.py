"""The queues that are consumed, each with the same methods; packages are imported when used.

None waits for the disk, except persist-queue, which has no such setting. Message ``n`` has ``n`` in
its first 8 bytes. What a killed process had taken comes again after :data:`LEASE_S`, if the queue
has such a time.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import lakelog
from lakelog import Delivery, Message
from tests.bench.model import CannotRunError

BODY_BYTES: Final = 200
LEASE_S: Final = 2
_START_S: Final = 30.0
Taken: TypeAlias = list[tuple[int, Any]]
"""The number of each message, and what acknowledges it."""


def bodies(count: int) -> Iterator[bytes]:
    """The bodies of all messages."""
    return (number.to_bytes(8, "big").ljust(BODY_BYTES, b"x") for number in range(count))


def number_of(body: Any) -> int:
    """The number of a message, from its body."""
    return int.from_bytes(bytes(body[:8]), "big")


class Peer:
    """A queue in a directory; each process has one, and calls :meth:`open` first."""

    note = ""
    shares = True
    """Whether several processes may consume at a time."""

    @contextmanager
    def serving(self, directory: Path) -> Iterator[None]:
        """Run a server for the time of the block, if it needs one."""
        yield

    def fill(self, directory: Path, count: int) -> None:
        """Put all messages into an empty directory."""
        self.open(directory)
        for each in bodies(count):
            self.put(each)
        self.close()

    def put(self, body: bytes) -> None:
        """Put a message; not needed by a queue that has :meth:`fill`."""
        raise NotImplementedError

    def open(self, directory: Path) -> None:
        """Become a consumer."""
        raise NotImplementedError

    def take(self, most: int) -> Taken:
        """Take messages; empty if there are none now."""
        raise NotImplementedError

    def done(self, taken: Taken) -> None:
        """Acknowledge messages."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what was opened; it was measured before."""


class Lakelog(Peer):
    """A member of a group."""

    note = "subscribe, poll, ack of all that a poll gave; flush=timed"

    def fill(self, directory: Path, count: int) -> None:
        with lakelog.open(directory, flush="timed", segment_size_bytes="64MiB") as store:
            store.put_batch([Message("t", each) for each in bodies(count)])

    def open(self, directory: Path) -> None:
        self._store = lakelog.open(directory, flush="timed", segment_size_bytes="64MiB")
        self._consumer = self._store.subscribe("g", "t", start="earliest")

    def take(self, most: int) -> Taken:
        return [(number_of(each.message.body), each) for each in self._consumer.poll(most, 50)]

    def done(self, taken: Taken) -> None:
        deliveries: list[Delivery] = [each for _, each in taken]
        self._consumer.ack(*deliveries)

    def close(self) -> None:
        self._consumer.close()
        self._store.close()


class ByHand(Peer):
    """One table of SQLite, as people write it."""

    note = "one table with an index in SQLite, WAL, synchronous=NORMAL; a transaction a call"

    def _connect(self, directory: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(directory / "queue", timeout=60, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def fill(self, directory: Path, count: int) -> None:
        connection = self._connect(directory)
        connection.execute(
            "CREATE TABLE m (id INTEGER PRIMARY KEY, body BLOB, state INTEGER NOT NULL DEFAULT 0, "
            "until REAL)"
        )
        connection.execute("CREATE INDEX i ON m (state, id)")
        connection.execute("BEGIN")
        rows = ((each,) for each in bodies(count))
        connection.executemany("INSERT INTO m (body) VALUES (?)", rows)
        connection.execute("COMMIT")
        connection.close()

    def open(self, directory: Path) -> None:
        self._connection = self._connect(directory)

    def take(self, most: int) -> Taken:
        run, now_s = self._connection.execute, time.time()
        run("BEGIN IMMEDIATE")
        query = "SELECT id, body FROM m WHERE state = ? {}ORDER BY id LIMIT ?"
        rows = run(query.format(""), (0, most)).fetchall()
        if not rows:
            again = query.format("AND until < ? ")
            rows = run(again, (1, now_s, most)).fetchall()
        taken = [(now_s + LEASE_S, row[0]) for row in rows]
        self._connection.executemany("UPDATE m SET state = 1, until = ? WHERE id = ?", taken)
        run("COMMIT")
        return [(number_of(body), number) for number, body in rows]

    def done(self, taken: Taken) -> None:
        run = self._connection
        run.execute("BEGIN IMMEDIATE")
        run.executemany("DELETE FROM m WHERE id = ?", [(each,) for _, each in taken])
        run.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class Huey(Peer):
    """The storage of huey, whose messages are removed when they are taken."""

    note = "SqliteStorage, fsync=False; one message a call, removed when taken: a kill loses it"

    def open(self, directory: Path) -> None:
        from huey.storage import SqliteStorage

        self._storage = SqliteStorage(filename=str(directory / "queue"), timeout=60, fsync=False)

    def put(self, body: bytes) -> None:
        self._storage.enqueue(body)

    def take(self, most: int) -> Taken:
        found = (self._storage.dequeue() for _ in range(most))
        return [(number_of(each), None) for each in iter(lambda: next(found, None), None)]

    def done(self, taken: Taken) -> None:
        pass

    def close(self) -> None:
        self._storage.close()


class PersistQueue(Peer):
    """The queue of persist-queue with acknowledgements."""

    note = "SQLiteAckQueue; one message a call, with a sync; of one process at a time"
    shares = False

    def open(self, directory: Path) -> None:
        from persistqueue import SQLiteAckQueue

        self._queue = SQLiteAckQueue(str(directory))

    def put(self, body: bytes) -> None:
        self._queue.put(body)

    def take(self, most: int) -> Taken:
        from persistqueue import Empty

        found: Taken = []
        with suppress(Empty):
            while len(found) < most:
                item = self._queue.get(block=False, raw=True)
                found.append((number_of(item["data"]), item["pqid"]))
        return found

    def done(self, taken: Taken) -> None:
        for _, each in taken:
            self._queue.ack(id=each)

    def close(self) -> None:
        self._queue.close()


class Lite(Peer):
    """The queue of litequeue."""

    note = "LiteQueue; one message a call; what a killed process had stays locked"

    def open(self, directory: Path) -> None:
        from litequeue import LiteQueue

        self._queue = LiteQueue(str(directory / "queue"), timeout=60)

    def put(self, body: bytes) -> None:
        self._queue.put(body.decode("latin-1"))

    def take(self, most: int) -> Taken:
        found = (self._queue.pop() for _ in range(most))
        taken = iter(lambda: next(found, None), None)
        return [(number_of(each.data.encode("latin-1")), each.message_id) for each in taken]

    def done(self, taken: Taken) -> None:
        for _, each in taken:
            self._queue.done(each)

    def close(self) -> None:
        self._queue.close()


class LmdbQueue(Peer):
    """The queue of lmdb-queue."""

    note = f"sync=False; one message a call; lease_time={LEASE_S}"

    def open(self, directory: Path) -> None:
        from equeue import Queue

        self._queue: Any = Queue(str(directory / "queue"), lease_time=LEASE_S, recover_interval=1.0)

    def put(self, body: bytes) -> None:
        self._queue.put(body)

    def take(self, most: int) -> Taken:
        from equeue.exceptions import QueueEmpty

        found: Taken = []
        with suppress(QueueEmpty):
            while len(found) < most:
                record = self._queue.get(timeout=0.0 if found else 0.05)
                found.append((number_of(record.payload), record))
        return found

    def done(self, taken: Taken) -> None:
        for _, each in taken:
            each.ack()

    def close(self) -> None:
        self._queue.close()


class RedisStream(Peer):
    """A group of a stream of Redis, by a socket in the directory."""

    note = f"XREADGROUP, XACK; appendonly, everysec; XAUTOCLAIM after {LEASE_S} s"

    @contextmanager
    def serving(self, directory: Path) -> Iterator[None]:
        program = shutil.which("redis-server")
        if program is None:
            raise CannotRunError("redis-server is not installed: apt-get install redis-server")
        socket = directory / "socket"
        words = ["--port", "0", "--unixsocket", str(socket), "--dir", str(directory)]
        words += ["--appendonly", "yes", "--save", ""]
        with subprocess.Popen([program, *words], stdout=subprocess.DEVNULL) as server:
            try:
                end_s = time.monotonic() + _START_S
                while not socket.exists():
                    if server.poll() is not None or time.monotonic() > end_s:
                        raise CannotRunError("redis-server does not start")
                    time.sleep(0.02)
                yield
            finally:
                server.kill()

    def open(self, directory: Path) -> None:
        from redis import Redis

        self._name = f"c{os.getpid()}"
        self._redis: Any = Redis(unix_socket_path=str(directory / "socket"), protocol=2)

    def fill(self, directory: Path, count: int) -> None:
        self.open(directory)
        self._redis.xgroup_create("t", "g", id="0", mkstream=True)
        pipeline = self._redis.pipeline(transaction=False)
        for each in bodies(count):
            pipeline.xadd("t", {"body": each})
        pipeline.execute()
        self._redis.close()

    def take(self, most: int) -> Taken:
        found = self._redis.xreadgroup("g", self._name, {"t": ">"}, count=most)
        rows = found[0][1] if found else []
        if not rows:
            idle_ms = LEASE_S * 1000
            rows = self._redis.xautoclaim("t", "g", self._name, idle_ms, count=most)[1]
        return [(number_of(fields[b"body"]), each) for each, fields in rows]

    def done(self, taken: Taken) -> None:
        self._redis.xack("t", "g", *(each for _, each in taken))

    def close(self) -> None:
        self._redis.close()


PEERS: Final[dict[str, type[Peer]]] = {
    "lakelog": Lakelog,
    "sqlite": ByHand,
    "huey": Huey,
    "persist-queue": PersistQueue,
    "litequeue": Lite,
    "lmdb-queue": LmdbQueue,
    "redis": RedisStream,
}


def peer(name: str) -> Peer:
    """A queue by its name."""
    return PEERS[name]()
