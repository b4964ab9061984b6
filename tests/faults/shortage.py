"""A process at a limit of its own: operations fail, and work again once the limit is lifted.

Run as a program, with the path of a store, a name in :data:`LIMITS`, a flush strategy, and the
first and the last place: a place is the number of descriptors, or of steps of address space, that
are left. It prints what happened as a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np  # noqa: F401  # half of an import that fails for want of memory stays

import lakelog
from lakelog import LakelogError, Message, Store

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "descriptors": {
        "segment_size_bytes": "64KiB",
        "hash_index": {"slots": 100, "entries": 400},
    },
    "memory": {
        "segment_size_bytes": "4MiB",
        "hash_index": {"slots": 1000, "entries": 40_000},
    },
}
BODY_BYTES: Final = 30_000
LARGE_BYTES: Final = 1_000_000
SMALL: Final = 2_000
STEP_BYTES: Final = 100_000
LAST: Final = 16
DESCRIPTORS: Final = 128


@contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
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
def little_memory(steps: int) -> Iterator[None]:
    """Leave some memory; what the heap has free is taken first, in large pieces, then in small."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), hard))
    taken = list[bytearray]()
    try:
        for size in (STEP_BYTES, STEP_BYTES // 16, 2048):
            with suppress(MemoryError):
                while True:
                    taken.append(bytearray(size))
        del taken[max(len(taken) - LAST, 0) :]  # what any program needs
        del taken[:steps]
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        taken.clear()


LIMITS: Final = {"descriptors": few_descriptors, "memory": little_memory}


class Run:
    """All operations at each place.

    :ivar acked: the keys of acknowledged messages
    :ivar failed: the number of failed operations, by the operation and the type of the error
    :ivar violations: raw errors, and operations that fail without the limit
    """

    def __init__(self, path: Path, flush: str, limit: str) -> None:
        self.path, self.flush, self.limit = path, flush, limit
        self.acked, self.violations = list[str](), list[str]()
        self.failed = dict[str, int]()
        self.operations = 0

    def opened(self, path: Path) -> Store:
        """Open a store."""
        return lakelog.open(path, flush=self.flush, **SETTINGS[self.limit])

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

    def put_large(self, store: Store) -> None:
        """A record that no other allocation has left room for."""
        store.put(Message("large", bytes(LARGE_BYTES)))

    def put_many(self, store: Store) -> None:
        """Many records, once as messages and once as columns."""
        store.put_batch([Message("many", b"", keys="k")] * SMALL)
        store.put_columns("many", [b"body"] * SMALL, keys="k")

    def get_many(self, store: Store) -> None:
        """All queues of a topic."""
        for queue_id in range(4):
            store.get("many", queue_id, 0, SMALL)
            store.get_records("many", queue_id, 0, SMALL)

    def open_another(self, _: Store) -> None:
        """A put in a store of its own."""
        with self.opened(self.path.with_name("another")) as another:
            another.put(Message("t", b""))

    def all(self) -> dict[str, Callable[[Store], object]]:
        """The operations, by their names."""
        many: dict[str, Callable[[Store], object]] = {
            "put_large": self.put_large,
            "put_many": self.put_many,
            "get_large": lambda store: store.get("large", 0, 0, 50),
            "get_many": self.get_many,
            "query": lambda store: store.query("many", "k", max_messages=SMALL),
        }
        return {
            **(many if self.limit == "memory" else {}),
            "put": self.put,
            "put_batch": self.put_batch,
            "get": lambda store: store.get("t", 0, 0, 50),
            "scan": lambda store: sum(1 for _ in store.scan()),
            "dispatch": lambda store: store.wait_dispatched(timeout_ms=200),
            "open": self.open_another,
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
                with LIMITS[self.limit](place):
                    for name in self.all():
                        self.one(name, store, f"{self.limit} {place}")
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
                if not list(store.query("t" if key[0] == "k" else "u", key))
            ]
        self.violations += [f"{key} is missing" for key in missing]


if __name__ == "__main__":
    found = Run(Path(sys.argv[1]), sys.argv[3], sys.argv[2])
    found.run(range(int(sys.argv[4]), int(sys.argv[5])))
    outcome = {
        "operations": found.operations,
        "failed": found.failed,
        "violations": found.violations,
    }
    sys.stdout.write(json.dumps(outcome) + "\n")
