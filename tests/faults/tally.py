"""Counts runs as they end, so that nothing is lost when a long matrix is stopped.

The file that ``FAULTS_TALLY`` names gets one line per run. To sum it up by test:
``python -m tests.faults.tally FILE``.

A run takes a third of the time with its stores in memory (``--basetemp=/dev/shm/x``; for the writer
``direct`` on a loop file system that stands there): what costs most is three openings, not syncs.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

VARIABLE: Final = "FAULTS_TALLY"
COUNTS: Final = ("runs", "strikes", "deaths", "acks", "refusals")


def note(*, fired: int, died: bool, acks: int, refusals: int) -> None:
    """Add a line for a run, if anybody asked for it; in one write, since workers share the file."""
    target = os.environ.get(VARIABLE)
    if target is None:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
    counts = (1, int(fired > 0), int(died), acks, refusals)
    line = {"test": test.rpartition("/")[2], **dict(zip(COUNTS, counts, strict=True))}
    with Path(target).open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def summed(lines: Iterable[str]) -> dict[str, Counter[str]]:
    """Counts of each test, and of all of them as ``all``."""
    found = dict[str, Counter[str]]()
    for each in map(json.loads, lines):
        for name in (each["test"], "all"):
            found.setdefault(name, Counter()).update({word: each[word] for word in COUNTS})
    return found


def main() -> None:
    """Print the sums, all of them last."""
    with Path(sys.argv[1]).open() as file:
        found = summed(file)
    for name in sorted(found, key=lambda name: (name == "all", name)):
        print(name, *(f"{word}={found[name][word]}" for word in COUNTS))  # noqa: T201  # a table for a person


if __name__ == "__main__":
    main()
