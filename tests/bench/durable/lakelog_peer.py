"""lakelog; the options are those of `lakelog.open`. Queues and index are built meanwhile."""

from __future__ import annotations

from concurrent.futures import Future
from itertools import count as count_from
from itertools import islice
from pathlib import Path

import lakelog
from lakelog import Message
from lakelog.message import MessageColumns
from tests.bench.content import QUEUES, TAGS, TOPIC, key
from tests.bench.durable.work import Options


class Peer:
    def __init__(self) -> None:
        self._numbers = count_from()

    def open(self, directory: Path, options: Options) -> None:
        self._store = lakelog.open(directory, **options)

    def put(self, body: bytes) -> object:
        return self._store.put(self._message(body))

    def put_async(self, body: bytes) -> Future[lakelog.PutResult]:
        return self._store.put_async(self._message(body))

    def put_batch(self, size: int, body: bytes) -> object:
        numbers = list(islice(self._numbers, size))
        queue_id = numbers[0] // size % QUEUES
        return self._store.put_batch(
            [
                Message(TOPIC, body, tags=TAGS, keys=key(number), queue_id=queue_id)
                for number in numbers
            ]
        )

    def put_columns(self, size: int, body: bytes) -> object:
        numbers = list(islice(self._numbers, size))
        queue_id = numbers[0] // size % QUEUES
        return self._store.put_batch(
            MessageColumns(TOPIC, [body] * size, queue_id, TAGS, [key(each) for each in numbers])
        )

    def close(self) -> None:
        self._store.close()

    def _message(self, body: bytes) -> Message:
        number = next(self._numbers)
        return Message(TOPIC, body, tags=TAGS, keys=key(number), queue_id=number % QUEUES)
