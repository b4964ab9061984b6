"""Many images in several processes, each with seeds of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Final

import attrs

from lakelog.testing.crash.plan import CrashPlan
from lakelog.testing.crash.simulation import Outcome, simulate

WRITERS: Final = ("file", "mmap", "staged", "direct")
FLUSHES: Final = ("none", "timed", "inline", "group-commit")
_IMAGES_OF_A_TASK: Final = 2_000
_SEEDS_APART: Final = 1_000_000


@attrs.frozen
class Row:
    """One writer with one flush strategy.

    :ivar seconds: of processor time, over all processes
    """

    writer: str
    flush: str
    images: int = 0
    second: int = 0
    seconds: float = 0.0
    violations: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    def plus(self, outcome: Outcome) -> Row:
        """With the outcome of one more task."""
        broken = outcome.violations
        return attrs.evolve(
            self,
            images=self.images + outcome.images,
            second=self.second + outcome.second,
            seconds=self.seconds + outcome.seconds,
            violations=(*self.violations, *map(str, broken)),
            commands=(*self.commands, outcome.command()) if broken else self.commands,
        )


def run_all(
    writers: Sequence[str],
    flushes: Sequence[str],
    images: int,
    seed: int,
    processes: int,
    keep: Path | None = None,
) -> Iterator[Row]:
    """A row for each pair, when its last task has ended.

    :param images: for each pair
    """
    rows = {pair: Row(*pair) for pair in product(writers, flushes)}
    tasks = -(-images // _IMAGES_OF_A_TASK)
    left = dict.fromkeys(rows, tasks)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = {
            pool.submit(
                _task, *pair, min(images, _IMAGES_OF_A_TASK), seed + n * _SEEDS_APART, keep
            ): pair
            for pair in rows
            for n in range(tasks)
        }
        for future in as_completed(futures):
            pair = futures[future]
            rows[pair] = rows[pair].plus(future.result())
            left[pair] -= 1
            if not left[pair]:
                yield rows[pair]


def _task(writer: str, flush: str, images: int, seed: int, keep: Path | None) -> Outcome:
    folder = keep / f"{writer}-{flush}-{seed}" if keep else None
    return simulate(CrashPlan(writer=writer, flush=flush), images, seed, keep=folder)
