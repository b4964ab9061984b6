"""The compared stores and modes, with the promise of each by its own documentation."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final

import attrs

from tests.bench.durable.peers import peer
from tests.bench.model import CannotRunError
from tests.oracle import java

SEGMENT_BYTES: Final = 4 << 20
_OURS: Final = {"segment_size_bytes": SEGMENT_BYTES}
_THEIRS: Final = {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)}
_LMDB: Final = "http://www.lmdb.tech/doc/group__mdb.html"
_ROCKSDB: Final = "https://github.com/facebook/rocksdb/wiki/Basic-Operations#synchronous-writes"
_ROCKETMQ: Final = "https://github.com/apache/rocketmq/blob/develop/docs/en/Design_Store.md"
_SQLITE: Final = "https://www.sqlite.org/pragma.html#pragma_synchronous"
_PROGRAM: Final = "tests.bench.comparison.child"
_DURABLE: Final = "on the disk: survives a power cut"


@attrs.frozen
class Store:
    """A store in one mode.

    :ivar driver: of `peers` and of the readers; ``rocketmq`` is in Java
    :ivar is_durable: whether a put that returned must survive a power cut
    :ivar promise: the promise of its documentation for a put that returned
    :ivar source: the link to that documentation
    :ivar data: pattern of its data files, below its directory
    """

    name: str
    driver: str
    is_durable: bool
    options: Mapping[str, Any]
    promise: str
    source: str
    data: str

    def missing(self) -> str | None:
        """Return a text with the requirements that are missing; ``None`` without any."""
        if self.driver == "rocketmq":
            return java.missing()
        try:
            peer(self.driver)
            if self.options.get("accelerator") == "native":
                import_module("lakelog_native._native")
        except (CannotRunError, ImportError) as reason:
            return f"{reason}; `make compare` installs what it can"
        return None

    def version(self) -> str:
        """Return the installed version."""
        if self.driver == "rocketmq":
            (jar,) = java.build_oracle().jars.glob("rocketmq-store-*.jar")
            return jar.stem.removeprefix("rocketmq-store-")
        if self.driver == "sqlite":
            return sqlite3.sqlite_version
        if self.driver == "lmdb":
            import lmdb

            return ".".join(map(str, lmdb.version()))
        package = {"lakelog": "lakelog-core", "rocksdb": "rocksdict"}[self.driver]
        return f"{version_of(package)}{' of rocksdict' * (self.driver == 'rocksdb')}"

    def putter(
        self, directory: Path, first: int = 0, count: int = 0, pause_us: int = 0
    ) -> list[str]:
        """Return the command of a process that puts; a count of 0 has no end."""
        if self.driver == "rocketmq":
            more = ["--first", str(first), "--count", str(count), "--pause-us", str(pause_us)]
            return self._java(directory, more)
        numbers = map(str, (first, count, pause_us))
        return [sys.executable, "-m", _PROGRAM, "put", self.name, str(directory), *numbers]

    def reader(self, directory: Path) -> list[str]:
        """Return the command of a process that reads all messages."""
        if self.driver == "rocketmq":
            return self._java(directory, ["--mode", "read"])
        return [sys.executable, "-m", _PROGRAM, "read", self.name, str(directory)]

    def _java(self, directory: Path, more: Sequence[str]) -> list[str]:
        return java.build_oracle().command("Numbered", directory, list(more), self.options)

    def file_to_damage(self, directory: Path) -> tuple[Path, int]:
        """Return the file with the most messages, and its length in use, in bytes."""
        used = {
            path: len(path.read_bytes().rstrip(b"\0"))
            for pattern in self.data.split()
            for path in directory.glob(pattern)
        }
        return max(used.items(), key=lambda each: each[1])


def _lakelog(name: str, promise: str, *, is_durable: bool = True, **options: Any) -> Store:
    given = {"accelerator": "native", "flush": "group-commit", **_OURS, **options}
    source = "reference/durability.md"
    return Store(name, "lakelog", is_durable, given, promise, source, "commitlog/*")


def _rocketmq(name: str, flush: str, promise: str) -> Store:
    options = {**_THEIRS, "flushDiskType": flush}
    is_durable = flush == "SYNC_FLUSH"
    return Store(name, "rocketmq", is_durable, options, promise, _ROCKETMQ, "commitlog/*")


def _sqlite(name: str, synchronous: str, promise: str) -> Store:
    options = {"journal": "WAL", "synchronous": synchronous}
    is_durable = synchronous == "FULL"
    return Store(name, "sqlite", is_durable, options, promise, _SQLITE, "messages.db")


def _lmdb(name: str, promise: str, *, sync: bool) -> Store:
    options = {"shared": True, "sync": sync}
    return Store(name, "lmdb", sync, options, promise, _LMDB, "data.mdb")


def _rocksdb(name: str, promise: str, *, sync: bool) -> Store:
    return Store(name, "rocksdb", sync, {"sync": sync}, promise, _ROCKSDB, "*.sst *.log")


STORES: Final = (
    _lakelog("lakelog", _DURABLE),
    _lakelog("lakelog, plain Python", _DURABLE, accelerator="none"),
    _lakelog(
        "lakelog, timed",
        "kept if the process dies; of a power cut, all but the last 0.5 s, 10 s at most",
        flush="timed",
        is_durable=False,
    ),
    _rocketmq("RocketMQ, SYNC_FLUSH", "SYNC_FLUSH", _DURABLE),
    _rocketmq(
        "RocketMQ, ASYNC_FLUSH",
        "ASYNC_FLUSH",
        "in the page cache: kept if the process dies; flushed later by a thread",
    ),
    _sqlite("SQLite, FULL", "FULL", _DURABLE),
    _sqlite(
        "SQLite, NORMAL",
        "NORMAL",
        "kept if the process dies; after a power cut the last ones may be rolled back, "
        "the database stays consistent",
    ),
    _lmdb("LMDB", _DURABLE, sync=True),
    _lmdb(
        "LMDB, nosync",
        "kept if the process dies; a power cut can lose the last ones, or corrupt the database "
        "unless the file system keeps the order of writes",
        sync=False,
    ),
    _rocksdb("RocksDB, sync", _DURABLE, sync=True),
    _rocksdb(
        "RocksDB, no sync",
        "kept if the process dies; a power cut may lose the last ones",
        sync=False,
    ),
)
"""The first mode of a store is the one whose files are damaged."""


def by_name(name: str) -> Store:
    """Return the store of that name."""
    return next(each for each in STORES if each.name == name)


def damaged_stores() -> list[Store]:
    """Return one mode of each store; damage does not depend on the mode."""
    return list({each.driver: each for each in reversed(STORES)}.values())[::-1]
