"""Appends until its standard input ends: ``producer.py STORE``; each batch is synced.

It says ``ready`` once there is something to land.
"""

from __future__ import annotations

import itertools
import select
import sys
import time

import lakelog
from lakelog import Message


def main(path: str) -> None:
    numbers = itertools.count()
    with lakelog.open(path, flush="inline", segment_size_bytes="256KiB") as store:
        put(store, numbers)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], 0)[0]:
            put(store, numbers)
            time.sleep(0.05)


def put(store: lakelog.Store, numbers: itertools.count[int]) -> None:
    """Messages of all topics."""
    batch = [
        Message(f"topic-{n % 3}", b"%d" % n * (n % 100), queue_id=n % 4)
        for n in itertools.islice(numbers, 25)
    ]
    store.put_batch(batch)


if __name__ == "__main__":
    main(sys.argv[1])
