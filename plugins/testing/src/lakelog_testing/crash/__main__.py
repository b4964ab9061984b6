"""``python -m lakelog_testing.crash``: simulates crashes of stores, for as many images as given.

Prints each violation at once, and a table at the end. The exit code is 1 if there was a violation.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lakelog_testing.crash.longrun import (
    FLUSHES,
    WRITERS,
    LongRunRow,
    add_to_tally,
    all_pairs,
    read_tally,
    run_all,
    summed,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulation, and print a table."""
    given = _parser().parse_args(arguments)
    if given.tell:
        return _print_table(read_tally(given.tally))
    pairs = all_pairs(given.writer or WRITERS, given.flush or FLUSHES)
    begun = time.monotonic()
    _print_line(f"seed {given.seed}")
    rows = []
    for row in run_all(pairs, given.images, given.seed, given.processes, given.keep):
        rows.append(row)
        for line in row.violations:
            _print_line(f"{row.writer} {row.flush}: {line}")
        if given.tally:
            add_to_tally(given.tally, row)
    _print_line(f"{time.monotonic() - begun:.0f} s; images/s are of one processor")
    return _print_table(rows)


def _print_table(rows: Iterable[LongRunRow]) -> int:
    table = summed(rows)
    _print_line(f"{'writer':<8} {'flush':<13} {'images':>9} {'second':>9} {'images/s':>9} broken")
    for row in table:
        rate = row.images / row.seconds if row.seconds else 0.0
        _print_line(
            f"{row.writer:<8} {row.flush:<13} {row.images:>9,} {row.second:>9,} {rate:>9.0f} "
            f"{len(row.violations)}"
        )
    _print_line(f"{sum(row.images for row in table):,} images")
    return 1 if any(row.violations for row in table) else 0


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m lakelog_testing.crash", description=__doc__)
    add = parser.add_argument
    add("--writer", action="append", help="a writer; may be given again; else all of lakelog's")
    add("--flush", action="append", help="a flush strategy; may be given again; else all")
    add("--images", type=int, default=2_000, help="for each pair of the two")
    add("--seed", type=int, default=secrets.randbelow(1_000_000))
    add("--processes", type=int, default=1)
    add("--keep", type=Path, help="a folder for the images that break a promise")
    add("--tally", type=Path, help="a file in which the results of several runs are added up")
    add("--tell", action="store_true", help="print the table of the tally, and run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
