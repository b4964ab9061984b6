"""A producer in a process of its own, which puts until it is told to stop.

Its messages are numbered; at the end it says what became of each, as JSON.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

from lakelog import Message, PutResult
from lakelog.attach.producer import Producer, connect
from lakelog.errors import OutcomeUnknown, PutRefused


class Numbered:
    """Puts numbered messages in all ways there are.

    :ivar told: what became of each: its offset in the log, or ``refused`` or ``unknown`` and why
    """

    def __init__(self, producer: Producer, name: str, seed: int) -> None:
        self._producer = producer
        self._name = name
        self._random = Random(seed)
        self._next = 0
        self._waiting: list[tuple[list[int], Future[Any]]] = []
        self.told: dict[int, int | str] = {}

    def _messages(self, count: int) -> tuple[list[int], list[Message]]:
        numbers = [*range(self._next, self._next + count)]
        self._next += count
        size = self._random.randrange(10, 700)
        return numbers, [
            Message(self._name, b"%d " % number + bytes(size), queue_id=number % 2)
            for number in numbers
        ]

    def put_some(self) -> None:
        """One put of whatever kind; the one before is over, so that the order is known."""
        kind = self._random.randrange(4)
        if kind == 0:
            numbers, (message,) = self._messages(1)
            self._note(numbers, lambda: [self._producer.put(message)])
        elif kind == 1:
            numbers, messages = self._messages(self._random.choice([2, 20, 100]))
            self._note(numbers, lambda: self._producer.put_batch(messages))
        elif kind == 2:
            for _ in range(30):
                numbers, (message,) = self._messages(1)
                self._waiting.append((numbers, self._producer.put_async(message)))
        else:
            for _ in range(4):
                numbers, messages = self._messages(self._random.choice([3, 30]))
                self._waiting.append((numbers, self._producer.put_batch_async(messages)))
        self._await()

    def _await(self) -> None:
        for numbers, future in self._waiting:
            self._note(numbers, lambda future=future: _as_list(future.result(60)))
        self._waiting.clear()

    def _note(self, numbers: list[int], get: Any) -> None:
        try:
            for number, result in zip(numbers, get(), strict=True):
                self.told[number] = result.physical_offset
        except PutRefused as error:
            self.told.update(dict.fromkeys(numbers, f"refused: {error}"))
        except OutcomeUnknown as error:
            self.told.update(dict.fromkeys(numbers, f"unknown: {error}"))


def _as_list(result: Any) -> Any:
    return [result] if isinstance(result, PutResult) else result


def wait_for_the_end(stop: Event) -> None:
    sys.stdin.read()
    stop.set()


def main(path: str, name: str, seed: str, timeout_ms: str) -> None:
    stop = Event()
    Thread(target=wait_for_the_end, args=(stop,), daemon=True).start()
    producer = connect(Path(path), timeout_ms=int(timeout_ms))
    numbered = Numbered(producer, name, int(seed))
    numbered.put_some()
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    while not stop.is_set():
        numbered.put_some()
    producer.close()
    sys.stdout.write(json.dumps(numbered.told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
