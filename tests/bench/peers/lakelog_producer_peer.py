"""lakelog again, with a producer for each queue: no object per message."""

from __future__ import annotations

from pathlib import Path

from tests.bench.content import QUEUES, TAGS, TOPIC, key
from tests.bench.peers import lakelog_peer

SETTINGS = "as lakelog, but messages are put by producers"


class Peer(lakelog_peer.Peer):
    def open(self, directory: Path) -> None:
        super().open(directory)
        self._puts = [
            self._store.producer(TOPIC, tags=TAGS, queue=queue).put for queue in range(QUEUES)
        ]

    def put(self, count: int, body: bytes) -> None:
        puts, numbers = self._puts, self._numbers
        for _ in range(count):
            number = next(numbers)
            puts[number % QUEUES](body, key(number))
