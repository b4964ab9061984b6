"""A process that forks at random moments of busy threads: each child can do everything, and ends.

``python -m tests.liveness.forks STORE SEED ROLE FLUSH``; it says as JSON which messages were
acknowledged, to its children too. Where something does not end it says where each thread stands,
and fails.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from itertools import islice
from random import Random
from threading import Event, Thread
from typing import Any, Final

import lakelog
from lakelog import Message, Store

LONGEST_SECONDS: Final = 50
OF_ONE: Final = 1_000_000
"""Numbers of messages that one thread or one child may give."""
ATTACH: Final[dict[str, Any]] = {"attach": {"on_fork": "attach"}}


class Busy:
    """Puts and looks, in a thread of the parent or in a child; the numbers are its own."""

    def __init__(self, number: int, writing: Store, reading: Store) -> None:
        self._next = number * OF_ONE
        self._topic = f"t{number % 2}"
        self._writing = writing
        self._reading = reading
        self.acknowledged: list[int] = []

    def verbs(self) -> list[Callable[[], object]]:
        verbs: list[Callable[[], object]] = [self.put, self.put_batch, self.put_async]
        for store in (self._writing, self._reading):
            verbs += [
                partial(store.get, self._topic, 0, 0),
                partial(store.query, self._topic, "k"),
                partial(_scan, store),
                store.queues,
            ]
        return verbs

    def _some(self, count: int) -> tuple[range, list[Message]]:
        first, self._next = self._next, self._next + count
        numbers = range(first, first + count)
        return numbers, [
            Message(self._topic, b"%d %d" % (each, os.getpid()), keys="k", queue_id=0)
            for each in numbers
        ]

    def put(self) -> None:
        numbers, (message,) = self._some(1)
        self._writing.put(message)
        self.acknowledged += numbers

    def put_batch(self) -> None:
        numbers, messages = self._some(40)
        self._writing.put_batch(messages)
        self.acknowledged += numbers

    def put_async(self) -> None:
        numbers, (message,) = self._some(1)
        self._writing.put_async(message).result()
        self.acknowledged += numbers

    def work(self, random: Random, stop: Event) -> None:
        """Any of them, until somebody says so."""
        verbs = self.verbs()
        while not stop.is_set():
            random.choice(verbs)()

    def open_anew(self, path: str) -> None:
        """What a child does that knows nothing of its parent's stores."""
        with lakelog.open(path, **ATTACH) as store:
            store.get(self._topic, 0, 0)
        with lakelog.open(path, mode="read") as store:
            _scan(store)


def _scan(store: Store) -> None:
    assert len(list(islice(store.scan(), 100))) <= 100


def child(busy: Busy, path: str, random: Random, answer: int) -> None:
    """Everything once, in any order; exits."""
    ended = 1
    try:
        signal.alarm(LONGEST_SECONDS)
        verbs: list[Callable[[], object]] = [*busy.verbs(), partial(busy.open_anew, path)]
        random.shuffle(verbs)
        for verb in verbs:
            verb()
        os.write(answer, json.dumps(busy.acknowledged).encode() + b"\n")
        ended = 0
    except BaseException:  # noqa: BLE001  # it must not come back to what its parent was doing
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(ended)


def forked(busy: Busy, path: str, random: Random, answer: int) -> int:
    seed = random.random()
    pid = os.fork()
    if not pid:
        child(busy, path, Random(seed), answer)
    return pid


def main(path: str, seed: str, role: str, flush: str) -> None:
    random = Random(int(seed))
    settings: dict[str, Any] = {"flush": flush, "segment_size_bytes": 1 << 20, **ATTACH}
    reading_end, answer = os.pipe()
    with lakelog.open(path, **settings) as owner:
        store = owner if role == "owner" else lakelog.open(path, **ATTACH)
        reader = lakelog.open(path, mode="read")
        stop = Event()
        busy = [Busy(number, store, reader) for number in range(2)]
        threads = [Thread(target=each.work, args=(Random(seed), stop)) for each in busy]
        starts = list(threads)
        pids = []
        for number in range(2, 2 + random.randrange(1, 5)):
            if starts and random.random() < 0.7:
                starts.pop().start()
            time.sleep(random.random() * random.choice([0.002, 0.02, 0.2]))
            pids.append(forked(Busy(number, store, reader), path, random, answer))
        ended = [os.waitpid(pid, 0)[1] for pid in pids]
        stop.set()
        for thread in set(threads) - set(starts):
            thread.join()
        reader.close()
        store.close()
    os.close(answer)
    assert ended == [0] * len(pids), f"children ended with {ended}"
    with os.fdopen(reading_end) as answers:
        told = [json.loads(line) for line in answers]
    everything = [*(each.acknowledged for each in busy), *told]
    sys.stdout.write(json.dumps([number for each in everything for number in each]))


if __name__ == "__main__":
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(2 * LONGEST_SECONDS)
    main(*sys.argv[1:])
