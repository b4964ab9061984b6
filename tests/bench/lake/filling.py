"""A store with a given number of messages, created once for all contenders; `python -m` fills it.

A file in its folder has the offsets at which it can be divided into ranges of about equal size.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog import MessageColumns
from tests.bench.content import QUEUES, TAGS, TOPIC, key
from tests.bench.lake.messages import POOL, bodies
from tests.bench.model import CannotRunError

RANGE_BYTES: Final = 64 << 20
_RANGES: Final = "ranges.json"


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
        command = [sys.executable, "-m", __name__, str(unfinished), str(rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotRunError(f"no store: {done.stderr.strip().splitlines()[-1]}")

    return once(shared / f"store-{rows}", make)


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
    pool, cuts = bodies(), [0]
    with lakelog.open(path, flush="timed", **settings) as opened:
        for first in range(0, rows, POOL):
            some = pool[: min(POOL, rows - first)]
            keys = [key(first + at) for at in range(len(some))]
            queues = [(first + at) % QUEUES for at in range(len(some))]
            opened.put_batch(MessageColumns(TOPIC, some, queues, TAGS, keys))
            cuts.append(opened.max_offset)
    (path / _RANGES).write_text(json.dumps(sorted(set(cuts))), encoding="ascii")


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]))
