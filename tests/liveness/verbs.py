"""A process that calls random verbs from many threads, and from callbacks: everything must end.

``python -m tests.liveness.verbs STORE SEED ROLE FLUSH``; it says as JSON which messages were
acknowledged. Where something does not end it says where each thread stands, and fails.
"""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from threading import Lock, Thread
from typing import Any, Final

import lakelog
from lakelog import Message, Store
from lakelog.errors import LakelogError
from lakelog.log import appender as coalesce

LONGEST_SECONDS: Final = 100
MOST_CALLBACKS: Final = 1000
OWNER: Final = """
import json, sys, lakelog
with lakelog.open(sys.argv[1], **json.loads(sys.argv[2])):
    print("up", flush=True)
    sys.stdin.read()
"""


class Verbs:
    """The verbs of a store, as it pleases a random number."""

    def __init__(self, store: Store, random: Random) -> None:
        self._store = store
        self._random = random
        self._lock = Lock()
        self._callbacks = MOST_CALLBACKS
        self._number = 0
        self.futures: list[tuple[Sequence[int], Future[Any]]] = []
        self.acknowledged: list[int] = []

    def begin(self, threads: int) -> list[Thread]:
        made = [Thread(target=self._work, args=(self._random.random(),)) for _ in range(threads)]
        for each in made:
            each.start()
        return made

    def _work(self, seed: float) -> None:
        random = Random(seed)
        for _ in range(random.choice([30, 150])):
            self._act(random, 0)

    def _act(self, random: Random, depth: int) -> None:
        """One verb; it may be refused, as the owner may be gone or the store closed."""
        verb = random.choices(
            [self._put, self._put_async, self._put_batch, self._put_batch_async, self._rest],
            [25, 30, 15, 15, 15],
        )[0]
        with suppress(LakelogError):
            verb(random, depth)

    def _put(self, random: Random, _depth: int) -> None:
        (number,), (message,) = self._some(random, 1)
        self._store.put(message)
        self.acknowledged.append(number)

    def _put_batch(self, random: Random, _depth: int) -> None:
        numbers, messages = self._some(random, random.choice([1, 5, 40]))
        self._store.put_batch(messages)
        self.acknowledged += numbers

    def _put_async(self, random: Random, depth: int) -> None:
        numbers, (message,) = self._some(random, 1)
        self._follow(numbers, self._store.put_async(message), random, depth)

    def _put_batch_async(self, random: Random, depth: int) -> None:
        numbers, messages = self._some(random, random.choice([1, 5, 40]))
        self._follow(numbers, self._store.put_batch_async(messages), random, depth)

    def _rest(self, random: Random, depth: int) -> None:
        other: list[Callable[[], object]] = [
            self._store.flush,
            lambda: self._store.get("t0", 0, 0, 5),
            lambda: time.sleep(random.random() / 500),
        ]
        if depth == 0:
            other.append(self._store.wait_dispatched)
        random.choice(other)()

    def _some(self, random: Random, count: int) -> tuple[Sequence[int], list[Message]]:
        with self._lock:
            first, self._number = self._number, self._number + count
        numbers = range(first, first + count)
        return numbers, [_message(number, random) for number in numbers]

    def _follow(
        self, numbers: Sequence[int], future: Future[Any], random: Random, depth: int
    ) -> None:
        self.futures.append((numbers, future))
        if random.random() < 0.4 and depth < 6:
            seed = random.random()
            future.add_done_callback(lambda _: self._again(seed, depth + 1))

    def _again(self, seed: float, depth: int) -> None:
        with self._lock:
            self._callbacks -= 1
            if self._callbacks < 0:
                return
        self._act(Random(seed), depth)

    def settled(self) -> list[int]:
        """The acknowledged messages; every future must be done."""
        for numbers, future in self.futures:
            assert future.done(), "a future is open behind the close"
            if future.exception() is None:
                self.acknowledged += numbers
        return self.acknowledged


def _message(number: int, random: Random) -> Message:
    return Message(
        f"t{random.randrange(3)}",
        b"%d " % number + bytes(random.choice([1, 100, 3_000, 20_000])),
        queue_id=random.randrange(2),
        keys="k",
        wait_store_ok=random.random() < 0.9,
    )


class Owner:
    """An owner in a process of its own; it can be ended or killed, and followed by another."""

    def __init__(self, path: str, settings: dict[str, Any]) -> None:
        self._command = [sys.executable, "-c", OWNER, path, json.dumps(settings)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"up\n"

    def end(self, *, kill: bool) -> None:
        if kill:
            self._process.kill()
        with self._process:
            pass


def main(path: str, seed: str, role: str, flush: str) -> None:
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    random = Random(int(seed))
    if random.random() < 0.4:
        coalesce.MAX_WAITING = random.choice([4, 64, 1024])  # type: ignore[misc]  # sooner full
    settings = _settings(random, flush)
    owner = None if role == "owner" else Owner(path, settings)
    store = lakelog.open(path, attach={"take_over": role != "attach"}, **settings)
    verbs = Verbs(store, random)
    threads = verbs.begin(random.choice([1, 2, 8]))
    if owner is not None:
        _disturb(owner, role, random)
    if random.random() < 0.3:  # beside them
        time.sleep(random.random() / 3)
        store.close()
    for each in threads:
        each.join()
    store.close()
    sys.stdout.write(json.dumps(verbs.settled()))
    if owner is not None:
        owner.end(kill=False)


def _settings(random: Random, flush: str) -> dict[str, Any]:
    return {
        "flush": flush,
        "segment_size_bytes": random.choice([1 << 20, 4 << 20]),
        "max_message_size_bytes": 30_000,
    }


def _disturb(owner: Owner, role: str, random: Random) -> None:
    """It goes, and nobody or another one comes."""
    if role == "attach" and random.random() < 0.7:
        return
    time.sleep(random.random() / 2)
    owner.end(kill=random.random() < 0.5)
    if role == "attach":
        owner.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
