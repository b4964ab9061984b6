"""Appends until its standard input ends: ``producer.py STORE``; each batch is synced."""

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
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], 0)[0]:
            batch = [
                Message(f"topic-{n % 3}", b"%d" % n * (n % 100), queue_id=n % 4)
                for n in itertools.islice(numbers, 25)
            ]
            store.put_batch(batch)
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
