"""A dispatcher to be killed: ``program.py STORE KIND TABLE PHASE NUMBER``.

Ends when what was durable at its start has landed.

Kills itself with SIGKILL when it comes to PHASE for the NUMBER-th time. Phases: ``planned``,
``written``, ``committed`` (after the commit, before anything else), ``inside`` (of the commit,
when the metadata is written and nothing refers to it yet; of Delta a moment by chance), ``never``.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lakelog
from lakelog_spark.landing.dispatcher import Source, land
from lakelog_spark.landing.engines import in_process
from lakelog_spark.landing.ranges import Bounds
from lakelog_spark.landing.targets import sink_for

BOUNDS = Bounds(pass_bytes=96 << 10, task_bytes=48 << 10)
LONGEST_DELTA_COMMIT_SECONDS = 0.02


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown:
    """Dies at the n-th time."""

    def __init__(self, phase: str, number: int) -> None:
        self._phase, self._left = phase, number

    def __call__(self, phase: str) -> None:
        if phase == self._phase:
            self._left -= 1
            if self._left == 0:
                die()


def kill_inside(kind: str, sink: Any, countdown: Countdown) -> None:
    """See to it that the countdown hears of the middle of each commit."""
    if kind == "iceberg":
        _after(type(sink.catalog), "_write_metadata", countdown)
    elif kind == "parquet":
        _before(os, "link", countdown)
    else:
        _beside(type(sink), "commit", countdown)


def _after(owner: Any, name: str, countdown: Countdown) -> None:
    inner: Callable[..., Any] = getattr(owner, name)

    def wrapped(*given: Any, **named: Any) -> Any:
        result = inner(*given, **named)
        countdown("inside")
        return result

    setattr(owner, name, staticmethod(wrapped))


def _before(owner: Any, name: str, countdown: Countdown) -> None:
    inner: Callable[..., Any] = getattr(owner, name)

    def wrapped(*given: Any, **named: Any) -> Any:
        countdown("inside")
        return inner(*given, **named)

    setattr(owner, name, wrapped)


def _beside(owner: Any, name: str, countdown: Countdown) -> None:
    inner: Callable[..., Any] = getattr(owner, name)

    def wrapped(*given: Any, **named: Any) -> Any:
        moment = random.uniform(0, LONGEST_DELTA_COMMIT_SECONDS)
        threading.Timer(moment, countdown, ["inside"]).start()
        return inner(*given, **named)

    setattr(owner, name, wrapped)


def main(store: str, kind: str, table: str, phase: str, number: int) -> None:
    countdown = Countdown(phase, number)
    sink = sink_for(f"{kind}:{table}")
    sink.prepare()
    if phase == "inside":
        kill_inside(kind, sink, countdown)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with lakelog.open(store, mode="read") as opened:
        end = opened.flushed_offset
    landed = land(Source(Path(store), "S"), sink, in_process, BOUNDS, countdown)
    while landed is not None and landed.end < end:
        landed = land(Source(Path(store), "S"), sink, in_process, BOUNDS, countdown)


if __name__ == "__main__":
    store, kind, table, phase, number = sys.argv[1:]
    main(store, kind, table, phase, int(number))
