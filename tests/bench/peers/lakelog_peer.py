"""lakelog with the flush strategy `none`; its queues and index are built meanwhile."""

from __future__ import annotations

from itertools import count as count_from
from pathlib import Path

import lakelog
from lakelog import Message
from tests.bench.content import QUEUES, TAGS, TOPIC, key

SETTINGS = "flush=none, segments of 1 GiB; queues built meanwhile in the same process"


class Peer:
    accelerator = "auto"

    def __init__(self) -> None:
        self._numbers = count_from()

    def open(self, directory: Path) -> None:
        self._store = lakelog.open(
            directory, segment_size_bytes=1 << 30, flush="none", accelerator=self.accelerator
        )

    def put(self, count: int, body: bytes) -> None:
        put, numbers = self._store.put, self._numbers
        for _ in range(count):
            number = next(numbers)
            put(Message(TOPIC, body, tags=TAGS, keys=key(number), queue_id=number % QUEUES))

    def put_batch(self, count: int, batch_size: int, body: bytes) -> None:
        put_batch, numbers = self._store.put_batch, self._numbers
        for batch in range(count // batch_size):
            queue_id = batch % QUEUES
            put_batch(
                [
                    Message(TOPIC, body, tags=TAGS, keys=key(next(numbers)), queue_id=queue_id)
                    for _ in range(batch_size)
                ]
            )

    def close(self) -> None:
        self._store.close()
