"""A reader in a process of its own; its arguments are ``FOLDER NAME WAY``.

``WAY`` is how it follows: ``follow`` (an iterator that goes on) or ``poll`` (long polling). Each
message it sees is a line ``saw QUEUE QUEUE-OFFSET PHYSICAL-OFFSET KEY`` of its journal, which it
goes on with when it is started again. Meanwhile it looks again at what it has seen.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from lakelog import Store, StoredMessage
from lakelog.errors import StoreClosed
from tests.processes.program import UNEXPECTED, guarded, opened, run
from tests.processes.words import QUEUES, STORE, TOPIC, Journal, fault_of, lines_of

_WAIT_MS: Final = 300
_AGAIN_SECONDS: Final = 0.05
SAW: Final = "saw"


@attrs.define
class Reader:
    """Follows the queues of a store, and remembers a part of what it saw."""

    store: Store
    journal: Journal
    stopping: threading.Event
    seen: list[tuple[int, int, int, str]] = attrs.field(factory=list)

    def follow(self, queue_id: int, start: int, way: str) -> None:
        messages = _followed if way == "follow" else _polled
        try:
            for message in messages(self.store, queue_id, start):
                self._saw(message, queue_id, start)
                start += 1
        except StoreClosed:
            assert self.stopping.is_set()

    def _saw(self, message: StoredMessage, queue_id: int, expected: int) -> None:
        fault = fault_of(message)
        if fault or message.queue_offset != expected:
            self.journal.tell(UNEXPECTED, queue_id, expected, message.queue_offset, fault)
        key = message.properties["KEYS"]
        found = (queue_id, message.queue_offset, message.physical_offset, key)
        self.journal.tell(SAW, *found)
        self.seen.append(found)

    def look_again(self) -> None:
        """What was seen once stays where it was."""
        choose = random.Random(1)
        try:
            while not self.stopping.wait(_AGAIN_SECONDS):
                if self.seen:
                    self._look_again(choose.choice(self.seen))
        except StoreClosed:
            assert self.stopping.is_set()

    def _look_again(self, what: tuple[int, int, int, str]) -> None:
        queue_id, queue_offset, place, key = what
        found = self.store.get(TOPIC, queue_id, queue_offset, 1)
        there = [(each.physical_offset, each.properties["KEYS"]) for each in found.messages]
        if there != [(place, key)]:
            self.journal.tell(UNEXPECTED, "vanished:", what, "now", there, found.status)


def _followed(store: Store, queue_id: int, start: int) -> Iterator[StoredMessage]:
    return store.read(TOPIC, queue_id, start, follow=True)


def _polled(store: Store, queue_id: int, start: int) -> Iterator[StoredMessage]:
    while True:
        found = store.get(TOPIC, queue_id, start, 500, wait_ms=_WAIT_MS)
        yield from found.messages
        start += len(found.messages)


def _starts(journal: Journal) -> list[int]:
    """Where each queue goes on."""
    starts = [0] * QUEUES
    for word, *rest in lines_of(journal.path):
        if word == SAW:
            starts[int(rest[0])] = int(rest[1]) + 1
    return starts


def _end_whole_line(journal: Journal) -> None:
    """A kill may have cut the last line; the next one begins on its own."""
    text = journal.path.read_bytes()
    if text and not text.endswith(b"\n"):
        journal.tell()


def main() -> None:
    run(_read)


def _read(folder: Path, journal: Journal, stopping: threading.Event, more: list[str]) -> None:
    (way,) = more
    _end_whole_line(journal)
    with opened(folder / STORE, journal, mode="read") as store:
        reader = Reader(store, journal, stopping)
        work = [partial(reader.follow, at, start, way) for at, start in enumerate(_starts(journal))]
        threads = [
            threading.Thread(target=guarded, args=(journal, each))
            for each in (*work, reader.look_again)
        ]
        for thread in threads:
            thread.start()
        while not stopping.wait(0.1):
            pass
    for thread in threads:
        thread.join()
