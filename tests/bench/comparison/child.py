"""Puts numbered messages into a store, or reads them in a process after the fault.

``python -m tests.bench.comparison.child put|read NAME DIRECTORY [FIRST COUNT PAUSE_US]``. Each
event is printed at once, in one line; `NS` is of the monotonic clock, which processes share::

    open SECONDS       ack NUMBER NS      no NUMBER NS WHY       (put, for ever if COUNT is 0)
    m QUEUE NUMBER     bad QUEUE          error WHAT             end (read)

``bad`` is a message whose bytes differ from those that were put.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import lakelog
from lakelog import PutResult, PutStatus
from lakelog_doctor.check import check
from tests.bench.comparison.stores import by_name
from tests.bench.durable.peers import MAP_BYTES, peer
from tests.bench.durable.work import Options

_PAUSE_AFTER_REFUSAL_SECONDS: Final = 0.001
_SELECT: Final = "SELECT number, CAST(body AS BLOB) FROM messages"
Messages: TypeAlias = Iterator[tuple[int, bytes]]
DIGITS: Final = 12
BODY_BYTES: Final = DIGITS * 85


def body_of(number: int) -> bytes:
    """The body of a message, about 1 KiB; `Numbered.java` makes the same."""
    return b"%012d" % number * (BODY_BYTES // DIGITS)


def number_of(body: bytes) -> int | None:
    """The number of a message; ``None`` if any byte is not as it was put."""
    digits = body[:DIGITS]
    return int(digits) if digits.isdigit() and body == body_of(int(digits)) else None


def tell(line: str) -> None:
    """Print a line, and flush it."""
    os.write(1, line.replace("\n", " ").encode() + b"\n")


def report(what: str) -> None:
    """Print a report of damage."""
    tell(f"error {what}")


def put(name: str, directory: Path, first: int, count: int, pause_us: int) -> None:
    """Put messages, and print each result; a failed put does not end the program."""
    store = by_name(name)
    started = time.perf_counter()
    putting: Any = peer(store.driver)
    putting.open(directory, store.options)
    tell(f"open {time.perf_counter() - started}")
    for number in itertools.islice(itertools.count(first), count or None):
        try:
            result = putting.put(body_of(number))
        except Exception as error:  # noqa: BLE001  # each store has errors of its own
            why: str | None = f"{type(error).__name__}: {error}"
        else:
            is_refused = isinstance(result, PutResult) and result.status is not PutStatus.PUT_OK
            why = str(result.status.name) if is_refused else None
        now = time.monotonic_ns()
        tell(f"ack {number} {now}" if why is None else f"no {number} {now} {why}")
        time.sleep(_PAUSE_AFTER_REFUSAL_SECONDS if why else pause_us / 1e6)
    putting.close()


# --- reading -----------------------------------------------------------------------------------


class Reader:
    """An open store after a fault; opening recovers it."""

    def __init__(self, directory: Path, options: Options) -> None:
        """Open the store."""
        raise NotImplementedError

    def messages(self) -> Messages:
        """Yield queue and body of each message, in queue order; properties may precede the body."""
        raise NotImplementedError

    def check(self) -> None:
        """Run the store's own check, if it has one."""


class LakelogReader(Reader):
    """The log, and each queue against it."""

    def __init__(self, directory: Path, options: Options) -> None:
        self._directory, self._options = directory, options
        self._store = lakelog.open(directory, on_late="return", **options)
        found = self._store.recovery
        assert found is not None, "nobody else has it open"
        for each in (*found.cut, *found.missing, *found.damage):
            report(f"recovery: {each}")

    def messages(self) -> Messages:
        logged = defaultdict[int, int](int)
        for message in self._store.scan(on_damage=lambda damage: report(f"log: {damage}")):
            logged[message.queue_id] += 1
            yield message.queue_id, bytes(message.body)
        for queue in self._store.queues():
            in_queue = sum(1 for _ in self._store.read(queue.topic, queue.queue_id))
            if in_queue != logged[queue.queue_id]:
                found = f"{in_queue} of {logged[queue.queue_id]} messages"
                report(f"queue {queue.queue_id} has {found}")

    def check(self) -> None:
        opening = {"accelerator": self._options["accelerator"]}
        for problem in check(self._directory, **opening):
            report(f"check: {problem}")


class LmdbReader(Reader):
    """The tree in the order of its keys; it has no checksums, and no check of its own."""

    def __init__(self, directory: Path, options: Options) -> None:
        import lmdb

        self._env = lmdb.open(str(directory), map_size=MAP_BYTES)

    def messages(self) -> Messages:
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            for value in cursor.iternext(keys=False, values=True):
                yield 0, value


class RocksDbReader(Reader):
    """All values in the order of their keys; each block and log record has a checksum."""

    def __init__(self, directory: Path, options: Options) -> None:
        from rocksdict import Options as RocksOptions
        from rocksdict import Rdict

        self._db = Rdict(str(directory), RocksOptions(raw_mode=True))

    def messages(self) -> Messages:
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
            report(str(error))
            yield from ((0, value) for value in reversed(list(self._behind(last))))

    def _behind(self, last: bytes) -> Iterator[bytes]:
        cursor = self._db.iter()
        cursor.seek_to_last()
        while cursor.valid() and cursor.key() > last:
            yield cursor.value()
            cursor.prev()


class SqliteReader(Reader):
    """The table in the order of its numbers, and ``PRAGMA integrity_check``."""

    def __init__(self, directory: Path, options: Options) -> None:
        self._connection = sqlite3.connect(directory / "messages.db", isolation_level=None)
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()

    def messages(self) -> Messages:
        """Read forward to the end or to damage; after damage also backward from the end."""
        last = -1
        try:
            for number, body in self._connection.execute(f"{_SELECT} ORDER BY number"):
                last = number
                yield 0, body
        except sqlite3.DatabaseError as error:
            report(str(error))
            yield from ((0, body) for body in reversed(list(self._behind(last))))

    def _behind(self, last: int) -> Iterator[bytes]:
        with suppress(sqlite3.DatabaseError):
            command = f"{_SELECT} WHERE number > ? ORDER BY number DESC"
            for _, body in self._connection.execute(command, (last,)):
                yield body

    def check(self) -> None:
        for (line,) in self._connection.execute("PRAGMA integrity_check"):
            if line != "ok":
                report(f"integrity_check: {line}")


READERS: Final[dict[str, type[Reader]]] = {
    "lakelog": LakelogReader,
    "lmdb": LmdbReader,
    "rocksdb": RocksDbReader,
    "sqlite": SqliteReader,
}


def read(name: str, directory: Path) -> None:
    """Read all messages, then run the store's own check."""
    store = by_name(name)
    started = time.perf_counter()
    try:
        opened = READERS[store.driver](directory, store.options)
        tell(f"open {time.perf_counter() - started}")
        for queue, body in opened.messages():
            number = number_of(bytes(body[-BODY_BYTES:]))
            tell(f"bad {queue}" if number is None else f"m {queue} {number}")
        opened.check()
    except Exception as error:  # noqa: BLE001  # the error is a result
        report(f"{type(error).__name__}: {error}")
    tell("end")
    os._exit(0)  # without closing the store, which would write


if __name__ == "__main__":
    if sys.argv[1] == "put":
        put(sys.argv[2], Path(sys.argv[3]), *map(int, sys.argv[4:7]))
    else:
        read(sys.argv[2], Path(sys.argv[3]))
