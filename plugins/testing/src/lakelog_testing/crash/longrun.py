"""Checks many images in several processes, with different seeds.

The pairs of writer and flush strategy alternate, so that a run may be stopped at any time. Of six
tasks of a pair, one has small messages in a single queue, and in another a sync fails in each run.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any, Final

from lakelog_testing.crash.plan import CrashPlan
from lakelog_testing.crash.simulation import SimulationResult, simulate

WRITERS: Final = ("file", "mmap", "staged", "direct")
FLUSHES: Final = ("none", "timed", "inline", "group-commit")
IMAGES_OF_A_TASK: Final = 1_000
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


def run_all(
    pairs: Sequence[tuple[str, str]],
    images: int,
    seed: int,
    processes: int,
    keep: Path | None = None,
) -> Iterator[SimulationResult]:
    """Yield the result of each task as it ends.

    :param images: number of images for each pair; slightly more may be tried
    """
    work = _tasks(pairs, images, seed)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:

        def begun(count: int) -> set[Future[SimulationResult]]:
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
            plan = CrashPlan(writer=writer, flush=flush, **more)
            yield plan, min(images - start, IMAGES_OF_A_TASK), seed + number * _SEEDS_APART


def _run(plan: CrashPlan, images: int, seed: int, keep: Path | None) -> SimulationResult:
    folder = keep / f"{plan.writer}-{plan.flush}-{seed}" if keep else None
    return simulate(plan, images, seed, keep=folder, most_violations=3)
