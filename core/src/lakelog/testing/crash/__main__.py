"""``python -m lakelog.testing.crash``: crashes stores for as long as one likes.

Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lakelog.testing.crash.longrun import FLUSHES, WRITERS, Row, run_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print a table."""
    given = _parser().parse_args(arguments)
    begun, broken = time.monotonic(), 0
    _say(f"seed {given.seed}")
    _say(f"{'writer':<10} {'flush':<14} {'images':>9} {'second':>8} {'images/s':>9} violations")
    rows = run_all(
        given.writer or WRITERS,
        given.flush or FLUSHES,
        given.images,
        given.seed,
        given.processes,
        given.keep,
    )
    for row in rows:
        _tell(row)
        broken += len(row.violations)
    _say(f"{time.monotonic() - begun:.0f} s; images/s are of one processor")
    return 1 if broken else 0


def _tell(row: Row) -> None:
    rate = row.images / row.seconds if row.seconds else 0.0
    _say(
        f"{row.writer:<10} {row.flush:<14} {row.images:>9,} {row.second:>8,} {rate:>9.0f} "
        f"{len(row.violations)}"
    )
    for line in (*row.violations[:5], *row.commands[:3]):
        _say(f"    {line}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m lakelog.testing.crash", description=__doc__)
    add = parser.add_argument
    add("--writer", action="append", help="a writer; may be given again; else all of lakelog's")
    add("--flush", action="append", help="a flush strategy; may be given again; else all")
    add("--images", type=int, default=2_000, help="for each pair of the two")
    add("--seed", type=int, default=secrets.randbelow(1_000_000))
    add("--processes", type=int, default=1)
    add("--keep", type=Path, help="a folder for the images that break a promise")
    return parser


if __name__ == "__main__":
    sys.exit(main())
