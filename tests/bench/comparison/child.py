"""Puts numbered messages into a store, or reads them in a process after the fault.

``python -m tests.bench.comparison.child put|read NAME DIRECTORY [FIRST COUNT PAUSE_US]``. Each
event is printed at once, in one line; `NS` is of the monotonic clock, which processes share::

    open SECONDS       ack NUMBER NS      no NUMBER NS WHY       (put, for ever if COUNT is 0)
    m QUEUE NUMBER     bad QUEUE          error WHAT             end (read)

``bad`` is a message whose bytes differ from those that were put.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

from lakelog import PutResult, PutStatus
from tests.bench import durable
from tests.bench.comparison import reading
from tests.bench.comparison.content import BODY_BYTES, body_of, number_of
from tests.bench.comparison.stores import by_name

_PAUSE_AFTER_REFUSAL_SECONDS = 0.001


def tell(line: str) -> None:
    """Print a line, and flush it."""
    os.write(1, line.replace("\n", " ").encode() + b"\n")


def put(name: str, directory: Path, first: int, count: int, pause_us: int) -> None:
    """Put messages, and print each result; a failed put does not end the program."""
    store = by_name(name)
    started = time.perf_counter()
    peer = durable.module(store.driver).Peer()
    peer.open(directory, store.options)
    tell(f"open {time.perf_counter() - started}")
    for number in itertools.islice(itertools.count(first), count or None):
        try:
            result = peer.put(body_of(number))
        except Exception as error:  # noqa: BLE001  # each store has errors of its own
            why: str | None = f"{type(error).__name__}: {error}"
        else:
            is_refused = isinstance(result, PutResult) and result.status is not PutStatus.PUT_OK
            why = str(result.status.name) if is_refused else None
        now = time.monotonic_ns()
        tell(f"ack {number} {now}" if why is None else f"no {number} {now} {why}")
        time.sleep(_PAUSE_AFTER_REFUSAL_SECONDS if why else pause_us / 1e6)
    peer.close()


def read(name: str, directory: Path) -> None:
    """Read all messages, then run the store's own check."""
    store = by_name(name)
    started = time.perf_counter()
    try:
        opened = reading.module(store.driver).Reader(directory, store.options, report)
        tell(f"open {time.perf_counter() - started}")
        for queue, body in opened.messages():
            number = number_of(bytes(body[-BODY_BYTES:]))
            tell(f"bad {queue}" if number is None else f"m {queue} {number}")
        opened.check()
    except Exception as error:  # noqa: BLE001  # the error is a result
        report(f"{type(error).__name__}: {error}")
    tell("end")
    os._exit(0)  # without closing the store, which would write


def report(what: str) -> None:
    """Print a report of damage."""
    tell(f"error {what}")


if __name__ == "__main__":
    if sys.argv[1] == "put":
        put(sys.argv[2], Path(sys.argv[3]), *map(int, sys.argv[4:7]))
    else:
        read(sys.argv[2], Path(sys.argv[3]))
