"""lakelog again, with batches as columns: no object per message."""

from __future__ import annotations

from itertools import islice

from lakelog.message import MessageColumns
from tests.bench.content import QUEUES, TAGS, TOPIC, key
from tests.bench.peers import lakelog_peer

SETTINGS = "as lakelog, but each batch is one MessageColumns"


class Peer(lakelog_peer.Peer):
    def put_batch(self, count: int, batch_size: int, body: bytes) -> None:
        put_batch, numbers = self._store.put_batch, self._numbers
        for batch in range(count // batch_size):
            keys = [key(number) for number in islice(numbers, batch_size)]
            put_batch(MessageColumns(TOPIC, [body] * batch_size, batch % QUEUES, TAGS, keys))
