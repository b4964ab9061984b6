"""Several producers append to one store until standard input ends: ``live_producers.py STORE``.

Segments are small, so that the log rolls often. A body tells whether it is whole: it is its
producer and number, and then that many bytes of it repeated; see :func:`body_of`.
"""

from __future__ import annotations

import sys
import threading
from itertools import count, islice
from pathlib import Path
from typing import Final

import lakelog
from lakelog import Message

PRODUCERS: Final = 3
QUEUES: Final = 2
_SEGMENT: Final = 64 << 10
_BATCH: Final = 20
_PAUSE_SECONDS: Final = 0.1


def body_of(producer: int, number: int) -> bytes:
    """What the message should hold."""
    mark = b"%d/%d;" % (producer, number)
    return mark * (1 + number % 50)


def main(path: str) -> None:
    stop = threading.Event()
    with lakelog.open(path, flush="group-commit", segment_size_bytes=_SEGMENT) as store:
        threads = [
            threading.Thread(target=append, args=(store, producer, stop))
            for producer in range(PRODUCERS)
        ]
        for each in threads:
            each.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()
        stop.set()
        for each in threads:
            each.join()


def append(store: lakelog.Store, producer: int, stop: threading.Event) -> None:
    numbers = count()
    while not stop.wait(_PAUSE_SECONDS):
        store.put_batch([message(producer, number) for number in islice(numbers, _BATCH)])


def message(producer: int, number: int) -> Message:
    return Message(
        f"topic-{producer}", body_of(producer, number), queue_id=number % QUEUES, keys=str(number)
    )


if __name__ == "__main__":
    main(str(Path(sys.argv[1])))
