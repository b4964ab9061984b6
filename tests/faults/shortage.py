"""A process at a limit of its own: operations fail, and work again once the limit is lifted.

Run as a program, with the path of a store, a name in :data:`LIMITS`, a flush strategy, and the
first and the last place: a place is the number of descriptors, threads, steps of address space,
pages of files or of the disk that are left, or of the folder that cannot be opened. It prints what
happened as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np  # noqa: F401  # half of an import that fails for want of memory stays

import lakelog
import lakelog.aio
from lakelog import LakelogError, Message, Store
from tests.faults.disks import eat

SMALL: Final[dict[str, Any]] = {
    "segment_size_bytes": "64KiB",
    "hash_index": {"slots": 100, "entries": 400},
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "memory": {
        "segment_size_bytes": "4MiB",
        "hash_index": {"slots": 1000, "entries": 40_000},
    },
}
"""By the limit; else those of small files."""
BODY_BYTES: Final = 30_000
LARGE_BYTES: Final = 1_000_000
MANY: Final = 500
STEP_BYTES: Final = 100_000
LEFT_OVER: Final = 16
DESCRIPTORS: Final = 128
ANOTHER_USER: Final = 54_321
"""Root's threads are not counted, and root may open everything."""


@contextmanager
def few_descriptors(spare: int, _path: Path) -> Iterator[None]:
    """Leave ``spare`` descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    filling = list[int]()
    try:
        with suppress(OSError):
            while True:
                filling.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(min(spare, len(filling))):
            os.close(filling.pop())
        yield
    finally:
        for each in filling:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def little_memory(steps: int, _path: Path) -> Iterator[None]:
    """Leave some memory; what the heap has free is taken first, in large pieces, then in small."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    taken = list[bytearray]()
    with _limited(resource.RLIMIT_AS, pages * resource.getpagesize()):
        try:
            for size in (STEP_BYTES, STEP_BYTES // 16, 2048):
                with suppress(MemoryError):
                    while True:
                        taken.append(bytearray(size))
            del taken[max(len(taken) - LEFT_OVER, 0) :]  # what any program needs
            del taken[:steps]
            yield
        finally:
            taken.clear()


@contextmanager
def _limited(kind: int, most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


@contextmanager
def few_threads(spare: int, _path: Path) -> Iterator[None]:
    """Leave ``spare`` threads to a user who runs nothing else."""
    running = len(list(Path("/proc/self/task").iterdir()))
    with _limited(resource.RLIMIT_NPROC, running + spare):
        yield


@contextmanager
def short_files(pages: int, _path: Path) -> Iterator[None]:
    """Refuse writes behind some pages of a file."""
    with _limited(resource.RLIMIT_FSIZE, pages * resource.getpagesize()):
        yield


@contextmanager
def full_disk(pages: int, path: Path) -> Iterator[None]:
    """Leave some pages of a small disk."""
    assert os.path.ismount(path.parent), "a whole disk would be filled"
    eaten = eat(path.parent, pages * resource.getpagesize())
    try:
        yield
    finally:
        eaten.unlink()


@contextmanager
def no_rights(at: int, path: Path) -> Iterator[None]:
    """Let nobody open one of the folders of a store."""
    folders = sorted(each for each in path.rglob("*") if each.is_dir())
    closed = [path, *folders][at % (len(folders) + 1)]
    mode = closed.stat().st_mode
    closed.chmod(0)
    try:
        yield
    finally:
        closed.chmod(mode)


LIMITS: Final = {
    "descriptors": few_descriptors,
    "memory": little_memory,
    "threads": few_threads,
    "file-length": short_files,
    "disk": full_disk,
    "rights": no_rights,
}


class Run:
    """All operations at each place.

    :ivar acked: the keys of acknowledged messages
    :ivar failed: the number of failed operations, by the operation and the type of the error
    :ivar violations: raw errors, and operations that fail without the limit
    """

    def __init__(self, path: Path, flush: str, limit: str) -> None:
        self.path, self.flush, self.limit = path, flush, limit
        self.settings = {"flush": flush, **SETTINGS.get(limit, SMALL)}
        self.acked, self.violations = list[str](), list[str]()
        self.closing: Store | None = None
        self.loop = asyncio.new_event_loop()
        self.failed = dict[str, int]()
        self.operations = 0

    def opened(self, path: Path) -> Store:
        """Open a store."""
        return lakelog.open(path, **self.settings)

    def put(self, store: Store) -> None:
        """Every second put rolls."""
        key = f"k{self.operations}"
        store.put(Message("t", bytes(BODY_BYTES), keys=key))
        self.acked.append(key)

    def put_batch(self, store: Store) -> None:
        """A roll in a batch."""
        keys = [f"b{self.operations}-{at}" for at in range(3)]
        store.put_batch([Message("u", bytes(BODY_BYTES), keys=key) for key in keys])
        self.acked += keys

    def put_many(self, store: Store) -> None:
        """Many records, once as messages and once as columns."""
        store.put_batch([Message("many", b"", keys="k")] * MANY)
        store.put_columns("many", [b"body"] * MANY, keys="k")

    def get_many(self, store: Store) -> None:
        """All queues of a topic."""
        for queue_id in range(4):
            store.get("many", queue_id, 0, MANY)
            store.get_records("many", queue_id, 0, MANY)

    def open_another(self, _: Store) -> None:
        """A put in a store of its own."""
        with self.opened(self.path.with_name("another")) as another:
            another.put(Message("t", b""))

    def put_async(self, store: Store) -> None:
        """A put whose future is waited for."""
        key = f"a{self.operations}"
        store.put_async(Message("t", b"a", keys=key)).result(20)
        self.acked.append(key)

    def subscribe(self, store: Store) -> None:
        """A member of a group takes a message."""
        with store.subscribe("g", "t", start="earliest") as member:
            for message in member.poll(1, wait_ms=200):
                member.ack(message)

    def aio(self, _: Store) -> None:
        """Open, put and close in an event loop."""

        async def work() -> None:
            async with await lakelog.aio.open(
                self.path.with_name("in-a-loop"), **self.settings
            ) as store:
                await store.put(Message("t", b""))

        self.loop.run_until_complete(work())

    def begin_closing(self) -> None:
        """Open a store, and put, without a limit; it is closed under one."""
        self.closing = self.opened(self.path.with_name("closing"))
        self.closing.put(Message("t", b"", keys=f"c{self.operations}"))

    def close(self, _: Store) -> None:
        """Close that store."""
        closing, self.closing = self.closing, None
        if closing is not None:
            closing.close()

    def check_closed(self, key: str) -> None:
        """What was put into it is there."""
        with self.opened(self.path.with_name("closing")) as store:
            if key not in {each.properties.get("KEYS") for each in store.scan()}:
                self.violations.append(f"{key} is missing after the close")

    def all(self) -> dict[str, Callable[[Store], object]]:
        """The operations, by their names."""
        many: dict[str, Callable[[Store], object]] = {
            "put_large": lambda store: store.put(Message("large", bytes(LARGE_BYTES))),
            "put_many": self.put_many,
            "get_large": lambda store: store.get("large", 0, 0, 50),
            "get_many": self.get_many,
            "query": lambda store: list(store.query("many", "k", max_messages=MANY)),
        }
        return {
            **(many if self.limit == "memory" else {}),
            "put": self.put,
            "put_batch": self.put_batch,
            "get": lambda store: store.get("t", 0, 0, 50),
            "scan": lambda store: sum(1 for _ in store.scan()),
            "dispatch": lambda store: store.wait_dispatched(timeout_ms=200),
            "open": self.open_another,
            "put_async": self.put_async,
            "flush": lambda store: store.flush(),
            "subscribe": self.subscribe,
            "aio": self.aio,
            "close": self.close,
        }

    def one(self, name: str, store: Store, place: str | None) -> None:
        """One operation; without a ``place`` there is no limit, and it must work."""
        self.operations += 1
        try:
            self.all()[name](store)
        except Exception as error:  # noqa: BLE001  # what may be raised is what is checked
            kind = f"{name}: {type(error).__name__}"
            self.failed[kind] = self.failed.get(kind, 0) + 1
            if place is None or not isinstance(error, LakelogError | MemoryError):
                self.violations.append(f"{place or 'no limit'}: {name}: {error!r}")

    def run(self, places: range) -> None:
        """All operations at each place, and all again behind each place."""
        with self.opened(self.path) as store:
            for name in [*self.all()] * 2:
                self.one(name, store, None)  # with all imports
            for place in places:
                self.begin_closing()
                key = f"c{self.operations}"
                with LIMITS[self.limit](place, self.path):
                    for name in self.all():
                        self.one(name, store, f"{self.limit} {place}")
                self.check_closed(key)
                for name in self.all():
                    self.one(name, store, None)
            if not store.wait_dispatched(timeout_ms=10_000):
                self.violations.append("dispatching has stopped")
        with self.opened(self.path) as store:
            kept = {each.properties.get("KEYS") for each in store.scan()}
            missing = [key for key in self.acked if key not in kept]
            missing += [
                f"{key} in the index"
                for key in self.acked[-3:]
                if not list(store.query("u" if key[0] == "b" else "t", key))
            ]
        self.violations += [f"{key} is missing" for key in missing]


class Dead:
    """Notices threads that die, and counts what lakelog logs.

    :ivar died: the errors of threads
    :ivar told: how often each text was logged
    """

    def __init__(self) -> None:
        self.died, self.told = list[str](), dict[str, int]()
        threading.excepthook = lambda hook: self.died.append(
            f"{hook.thread and hook.thread.name} died of {hook.exc_value!r}"
        )
        handler = logging.Handler(logging.WARNING)
        handler.emit = self._note  # type: ignore[method-assign]  # no class for one method
        logging.getLogger("lakelog").addHandler(handler)

    def _note(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.told[text] = self.told.get(text, 0) + 1


def _as_another_user(path: Path, flush: str) -> None:
    """Load everything as root, who may read all modules, then give the store's folder away."""
    for each in (Path(path.parent, "warm", name) for name in ("a", "b")):
        warm = Run(each, flush, "file-length")
        each.parent.mkdir(exist_ok=True)
        with few_descriptors(9, each):
            pass
        warm.run(range(2))
    os.chown(path.parent, ANOTHER_USER, ANOTHER_USER)
    os.setgid(ANOTHER_USER)
    os.setuid(ANOTHER_USER)


if __name__ == "__main__":
    where, of, strategy = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    if of in ("threads", "rights"):
        _as_another_user(where, strategy)
    seen = Dead()
    found = Run(where, strategy, of)
    found.run(range(int(sys.argv[4]), int(sys.argv[5])))
    outcome = {
        "operations": found.operations,
        "failed": found.failed,
        "violations": found.violations + seen.died,
        "told": seen.told,
    }
    sys.stdout.write(json.dumps(outcome) + "\n")
