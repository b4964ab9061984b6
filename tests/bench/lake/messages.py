"""The messages of all contenders: JSON events of 1 KiB, with a typical compression ratio.

Also stores with a given number of them, each made once for all contenders; `python -m` fills one. A
file in its folder has the offsets at which it can be divided into ranges of about equal size.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog import MessageColumns
from tests.bench import running
from tests.bench.content import QUEUES, TAGS, TOPIC, key

RANGE_BYTES: Final = 64 << 20
_RANGES: Final = "ranges.json"
BODY_BYTES: Final = 1024
POOL: Final = 8192
"""Number of different bodies, used in turn: 8 MiB, more than the window of a compressor."""
TOPICS: Final = 20
"""Number of topics of a store of many topics."""
_RUN: Final = 32
"""Number of consecutive messages of one topic in it."""
_WORDS: Final = 4096
_LEAST: Final = 4  # length of a word with its space
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


@cache
def bodies() -> list[bytes]:
    """Return all bodies; the same in every process."""
    source = random.Random(1)
    words = [
        "".join(source.choices(_LETTERS, k=source.randint(_LEAST - 1, 9))) for _ in range(_WORDS)
    ]
    return [_event(source, words) for _ in range(POOL)]


def _event(source: random.Random, words: list[str]) -> bytes:
    event = {
        "id": source.randbytes(16).hex(),
        "user": source.randrange(10**7),
        "amount": round(source.uniform(1, 5000), 2),
        "at": f"2026-11-21T{source.randrange(24):02d}:{source.randrange(60):02d}:00Z",
        "note": "",
    }
    room = BODY_BYTES - len(json.dumps(event))
    event["note"] = " ".join(source.choices(words, k=room // _LEAST + 1))[:room]
    return json.dumps(event).encode()


def columns(numbers: range, topic: str = TOPIC) -> MessageColumns:
    """Return these of the messages, spread over the queues."""
    return MessageColumns(
        topic,
        [bodies()[each % POOL] for each in numbers],
        [each % QUEUES for each in numbers],
        TAGS,
        [key(each) for each in numbers],
    )


def once(target: Path, make: Callable[[Path], None]) -> Path:
    """Let ``make`` create ``target``, unless it exists; it gets its name when it is complete."""
    if not target.exists():
        unfinished = target.with_name(f"{target.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)  # of a ``make`` that failed
        make(unfinished)
        unfinished.rename(target)
    return target


def store(shared: Path, rows: int) -> Path:
    """Return a closed store of ``rows`` messages in the folder ``shared``."""

    def make(unfinished: Path) -> None:
        running.output(running.python(__name__, unfinished, rows))

    return once(shared / f"store-{rows}", make)


def store_of_topics(shared: Path, rows: int) -> Path:
    """Return a closed store of ``rows`` messages of :data:`TOPICS` topics, in turns."""

    def make(unfinished: Path) -> None:
        running.output(running.python(__name__, unfinished, rows, "topics"))

    return once(shared / f"store-{rows}-topics", make)


def ranges(path: Path, at_once: int = 1) -> list[tuple[int, int]]:
    """Return ranges of the store, cut between records, of about 64 MiB at most.

    :param at_once: ranges processed at the same time; their number is a multiple of it
    """
    cuts: list[int] = json.loads((path / _RANGES).read_text(encoding="ascii"))
    first, end = cuts[0], cuts[-1]
    count = -(-(end - first) // RANGE_BYTES)
    count = -(-count // at_once) * at_once
    targets = [first + (end - first) * number // count for number in range(count + 1)]
    chosen = sorted({min(cuts, key=lambda cut: abs(cut - target)) for target in targets})
    return list(pairwise(chosen))


def fill(path: Path, rows: int, **settings: Any) -> None:
    """Put ``rows`` messages, by columns, into a store with these ``settings``."""
    cuts = [0]
    with lakelog.open(path, flush="timed", **settings) as opened:
        for first in range(0, rows, POOL):
            opened.put_batch(columns(range(first, min(first + POOL, rows))))
            cuts.append(opened.max_offset)
    (path / _RANGES).write_text(json.dumps(sorted(set(cuts))), encoding="ascii")


def fill_topics(path: Path, rows: int, **settings: Any) -> None:
    """Put ``rows`` messages in runs of one topic into a store with these ``settings``."""
    with lakelog.open(path, flush="timed", **settings) as opened:
        for number, first in enumerate(range(0, rows, _RUN)):
            topic = f"{TOPIC}-{number % TOPICS:02d}"
            opened.put_batch(columns(range(first, min(first + _RUN, rows)), topic))


if __name__ == "__main__":
    (fill_topics if sys.argv[3:] else fill)(Path(sys.argv[1]), int(sys.argv[2]))
