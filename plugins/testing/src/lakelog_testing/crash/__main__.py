"""``python -m lakelog_testing.crash``: simulates crashes of stores, for as many images as given.

Prints each violation at once, and a table at the end. The exit code is 1 if there was a violation.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from lakelog_testing.crash import opener, simulation


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulation, and print a table."""
    given = _parser().parse_args(arguments)
    pairs = list(product(given.writer or opener.WRITERS, given.flush or opener.FLUSHES))
    begun = time.monotonic()
    _print_line(f"seed {given.seed}")
    outcomes = []
    for outcome in simulation.run_all(pairs, given.images, given.seed, given.processes, given.keep):
        outcomes.append(outcome)
        if outcome.violations:
            _print_line(f"{outcome.plan.writer} {outcome.plan.flush}: {outcome}")
    _print_line(f"{time.monotonic() - begun:.0f} s; images/s are of one processor")
    _print_line(f"{'writer':<8} {'flush':<13} {'images':>9} {'second':>9} {'images/s':>9} broken")
    for pair in pairs:
        plans = [each for each in outcomes if (each.plan.writer, each.plan.flush) == pair]
        _print_row(*pair, plans)
    _print_line(f"{sum(each.images for each in outcomes):,} images")
    return 1 if any(each.violations for each in outcomes) else 0


def _print_row(writer: str, flush: str, outcomes: Sequence[simulation.SimulationResult]) -> None:
    images, second = sum(each.images for each in outcomes), sum(each.second for each in outcomes)
    seconds = sum(each.seconds for each in outcomes)
    broken = sum(len(each.violations) for each in outcomes)
    rate = images / seconds if seconds else 0.0
    _print_line(f"{writer:<8} {flush:<13} {images:>9,} {second:>9,} {rate:>9.0f} {broken}")


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
    return parser


if __name__ == "__main__":
    sys.exit(main())
