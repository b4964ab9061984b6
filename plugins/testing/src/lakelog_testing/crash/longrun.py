"""Checks many images in several processes, with different seeds; results accumulate in a file.

The pairs of writer and flush strategy alternate, so that a run may be stopped at any time. Of six
tasks of a pair, one has small messages in a single queue, and in another a sync fails in each run.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog_testing.crash.plan import CrashPlan
from lakelog_testing.crash.simulation import SimulationResult, simulate

WRITERS: Final = ("file", "mmap", "staged", "direct")
FLUSHES: Final = ("none", "timed", "inline", "group-commit")
IMAGES_OF_A_TASK: Final = 1_000
IMAGES_PER_WHOLE_CHECK: Final = 50
_SEEDS_APART: Final = 1_000_000
_SMALL_BODY_BYTES: Final = 40
VARIANTS: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {},
    {"body_bytes": _SMALL_BODY_BYTES},
    {},
    {},
    {"failing_sync": True},
)


@attrs.frozen
class LongRunRow:
    """The results of one task, or of all tasks of a pair.

    :ivar second: number of images of a crash during a recovery, or shortly after it
    :ivar seconds: CPU time
    :ivar violations: the violations, and the command that reproduces them
    """

    writer: str
    flush: str
    images: int = 0
    second: int = 0
    seconds: float = 0.0
    violations: tuple[str, ...] = ()

    @property
    def pair(self) -> tuple[str, str]:
        """Writer and flush strategy."""
        return self.writer, self.flush

    @classmethod
    def of(cls, outcome: SimulationResult) -> LongRunRow:
        """The result of one task."""
        plan, found = outcome.plan, [str(each) for each in outcome.violations]
        report = (outcome.command(), *found) if found else ()
        return cls(plan.writer, plan.flush, outcome.images, outcome.second, outcome.seconds, report)

    def plus(self, more: LongRunRow) -> LongRunRow:
        """The sum of two results of the same pair."""
        return attrs.evolve(
            self,
            images=self.images + more.images,
            second=self.second + more.second,
            seconds=self.seconds + more.seconds,
            violations=(*self.violations, *more.violations),
        )


def summed(rows: Iterable[LongRunRow]) -> list[LongRunRow]:
    """One row for each pair."""
    found: dict[tuple[str, str], LongRunRow] = {}
    for row in rows:
        found[row.pair] = found[row.pair].plus(row) if row.pair in found else row
    return list(found.values())


def read_tally(path: Path) -> list[LongRunRow]:
    """The results of earlier runs."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        LongRunRow(**{**found, "violations": tuple(found["violations"])})
        for found in map(json.loads, lines)
    ]


def add_to_tally(path: Path, row: LongRunRow) -> None:
    """Append the result of a task."""
    with path.open("a") as file:
        file.write(json.dumps(attrs.asdict(row)) + "\n")


def run_all(
    pairs: Sequence[tuple[str, str]],
    images: int,
    seed: int,
    processes: int,
    keep: Path | None = None,
) -> Iterator[LongRunRow]:
    """Yield the result of each task as it ends.

    :param images: number of images for each pair; slightly more may be tried
    """
    work = _tasks(pairs, images, seed)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:

        def begun(count: int) -> set[Future[LongRunRow]]:
            return {pool.submit(_run, *task, keep) for task in islice(work, count)}

        running = begun(2 * processes)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in done)
            running |= begun(len(done))


def _tasks(
    pairs: Sequence[tuple[str, str]], images: int, seed: int
) -> Iterator[tuple[CrashPlan, int, int]]:
    for number, start in enumerate(range(0, images, IMAGES_OF_A_TASK)):
        more = VARIANTS[number % len(VARIANTS)]
        for writer, flush in pairs:
            plan = CrashPlan(
                writer=writer, flush=flush, images_per_whole_check=IMAGES_PER_WHOLE_CHECK, **more
            )
            yield plan, min(images - start, IMAGES_OF_A_TASK), seed + number * _SEEDS_APART


def _run(plan: CrashPlan, images: int, seed: int, keep: Path | None) -> LongRunRow:
    folder = keep / f"{plan.writer}-{plan.flush}-{seed}" if keep else None
    return LongRunRow.of(simulate(plan, images, seed, keep=folder, most_violations=3))


def all_pairs(writers: Sequence[str], flushes: Sequence[str]) -> list[tuple[str, str]]:
    """Every writer with every flush strategy."""
    return list(product(writers, flushes))
