"""A producer in a process of its own.

Its arguments are ``FOLDER NAME WAY ORDERS``: ``WAY`` is how it puts, ``put``,
``put_batch``, ``put_async`` or ``put_columns``; ``ORDERS`` are JSON, the arguments of
:func:`lakelog.open`. It puts until SIGTERM, and tells in its journal, by numbers of messages, first
and last:

- ``begun``: it is about to put them
- ``acked``: they are answered with ``PUT_OK``; behind that, where each stands
- ``late``: they are in the log, but something could not be had in time; likewise
- ``refused``: none of them is in the log
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from lakelog import PutRefused, PutResult, PutStatus, Store
from lakelog.files.filesystem import RealFileSystem
from lakelog.processes.ownership import is_owned
from tests.processes.program import opened, run, said
from tests.processes.words import STORE, TOPIC, Journal, body_of, key_of, message_of, queue_of

Put: TypeAlias = Callable[[Store, Sequence[str]], Sequence[PutResult]]

LARGEST_BATCH: Final = 24
IN_FLIGHT: Final = 16
PATIENCE_SECONDS: Final = 90
_LOOK_SECONDS: Final = 0.02
PAUSES_SECONDS: Final = {"put": 0.002, "put_async": 0.002, "put_batch": 0.02, "put_columns": 0.02}


@attrs.define
class Producer:
    """Numbers its messages from 0 on, and tells what becomes of them."""

    store: Store
    journal: Journal
    name: str
    pause_seconds: float
    stopping: threading.Event
    choose: random.Random
    next: int = 0

    def in_turn(self, put: Put, most: int) -> None:
        while self._goes_on():
            first, keys = self._begin(self.choose.randint(1, most))
            self._settled(first, self.next - 1, partial(put, self.store, keys))

    def in_background(self) -> None:
        """The next when the oldest of those that are under way has its result."""
        flying = deque[tuple[int, Future[PutResult]]]()
        while self._goes_on():
            first, keys = self._begin(1)
            flying.append((first, self.store.put_async(message_of(keys[0]))))
            if len(flying) == IN_FLIGHT:
                self._landed(*flying.popleft())
        for number, future in flying:
            self._landed(number, future)

    def _landed(self, number: int, future: Future[PutResult]) -> None:
        self._settled(number, number, lambda: [future.result(PATIENCE_SECONDS)])

    def _goes_on(self) -> bool:
        """Whether to put more, after a pause."""
        time.sleep(self.choose.uniform(0, 2 * self.pause_seconds))
        return not self.stopping.is_set()

    def _begin(self, count: int) -> tuple[int, Sequence[str]]:
        first, self.next = self.next, self.next + count
        self.journal.tell("begun", first, self.next - 1)
        return first, [key_of(self.name, number) for number in range(first, self.next)]

    def _settled(self, first: int, last: int, put: Callable[[], Sequence[PutResult]]) -> None:
        try:
            results = put()
        except PutRefused as error:
            self._refused(first, last, error)
        else:
            self._answered(first, last, results)

    def _answered(self, first: int, last: int, results: Sequence[PutResult]) -> None:
        word = "acked" if all(each.status is PutStatus.PUT_OK for each in results) else "late"
        self.journal.tell(word, first, last, *(each.physical_offset for each in results))

    def _refused(self, first: int, last: int, error: PutRefused) -> None:
        """A batch that went in pieces may have been taken in part."""
        done = len(error.accepted)
        if done:
            self._answered(first, first + done - 1, error.accepted)
        self.journal.tell("refused", first + done, last, error.status.name, said(error))


def _one(store: Store, keys: Sequence[str]) -> Sequence[PutResult]:
    return [store.put(message_of(key)) for key in keys]


def _batch(store: Store, keys: Sequence[str]) -> Sequence[PutResult]:
    return store.put_batch([message_of(key) for key in keys])


def _columns(store: Store, keys: Sequence[str]) -> Sequence[PutResult]:
    bodies, queues = [body_of(key) for key in keys], [queue_of(key) for key in keys]
    return store.put_columns(TOPIC, bodies, queue_ids=queues, keys=keys)


WAYS: Final[Mapping[str, Callable[[Producer], None]]] = {
    "put": lambda producer: producer.in_turn(_one, 1),
    "put_batch": lambda producer: producer.in_turn(_batch, LARGEST_BATCH),
    "put_async": Producer.in_background,
    "put_columns": lambda producer: producer.in_turn(_columns, LARGEST_BATCH),
}


def main() -> None:
    run(_produce)


def _produce(folder: Path, journal: Journal, stopping: threading.Event, more: list[str]) -> None:
    way, how, path = more[0], json.loads(more[1]), folder / STORE
    while not (how["attach"]["take_over"] or is_owned(RealFileSystem(), path)):
        if stopping.wait(_LOOK_SECONDS):  # who is no heir leaves the services to the others
            return
    with opened(path, journal, **how) as store:
        journal.tell("opened", store)
        name, pause = journal.path.name, PAUSES_SECONDS[way]
        WAYS[way](Producer(store, journal, name, pause, stopping, random.Random(name)))
