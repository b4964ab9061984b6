"""Puts messages of many kinds into a store until it is killed.

``python -m tests.support.putting STORE SETTINGS SEED``; the settings are JSON. After each put, a
line of output has the physical offset of each acknowledged message.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

import lakelog
from lakelog import Message, PutResult, PutStatus, Store
from lakelog.format.properties import INNER_MULTI_DISPATCH, KEYS

TOPICS: Final = ("orders", "Größe", "u" * 128)
PAUSE_SECONDS: Final = 0.001


def messages(chance: random.Random) -> Iterator[Message]:
    """Yield messages for several queues, with keys and tags; some for light queues too."""
    for number in itertools.count():
        properties = {"UNIQ_KEY": f"{number:032X}"} if chance.random() < 0.5 else {}
        if chance.random() < 0.1:
            properties[INNER_MULTI_DISPATCH] = "%LMQ%a,%LMQ%b"
        keys = chance.choice((None, "one", f"k{number}", "two  three"))
        if keys is not None:
            properties[KEYS] = keys  # two spaces: RocketMQ's clients can send them
        yield Message(
            chance.choice(TOPICS),
            chance.randbytes(chance.choice((0, 1, 100, 300, 300, 5000))),
            tags=chance.choice((None, "TagA", "标签")),
            properties=properties,
            queue_id=chance.randrange(2),
        )


def put(store: Store, chance: random.Random, source: Iterator[Message]) -> Iterable[PutResult]:
    """Put one message, a batch, or several asynchronously, at random."""
    way = chance.randrange(8)
    if way == 0:
        return store.put_batch(list(itertools.islice(source, 16)))
    if way == 1:
        futures = [store.put_async(each) for each in itertools.islice(source, 8)]
        return [each.result(30) for each in futures]
    return [store.put(next(source))]


def main() -> None:
    """Put messages and print their offsets, until the process is killed."""
    path, settings, seed = sys.argv[1:]
    chance = random.Random(int(seed))
    source = messages(chance)
    with lakelog.open(path, on_late="return", **json.loads(settings)) as store:
        while True:
            done = put(store, chance, source)
            lines = [
                f"{each.physical_offset}\n" for each in done if each.status is PutStatus.PUT_OK
            ]
            os.write(sys.stdout.fileno(), "".join(lines).encode())
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
