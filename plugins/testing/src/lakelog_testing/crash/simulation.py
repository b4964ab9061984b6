"""Runs workloads, simulates crashes at every point, and checks the resulting images."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Final

import attrs

from lakelog.errors import PluginError
from lakelog.format.layout import ABORT_FILE
from lakelog_testing.crash.checker import Checker, LogBytes, Violation
from lakelog_testing.crash.filesystem import CrashPoint, FrozenState, SimFileSystem
from lakelog_testing.crash.images import KILL, Image, different, nothing_lost
from lakelog_testing.crash.ledger import Expected, Ledger
from lakelog_testing.crash.opener import TOOLS, CrashPlan, Opener, Tool
from lakelog_testing.crash.workload import CLOSED, Workload

STORE: Final = "store"
"""Name of the store's directory in an image."""
_IMAGES_OF_A_POINT: Final = 6
_POINTS_OF_A_SECOND_CRASH: Final = 6
_IMAGES_OF_A_SECOND_POINT: Final = 4
_INTERLEAVED_SHARE: Final = 0.7
_TOOL_SHARE: Final = 0.04
_TOOL_SHARE_OF_SECOND_CRASHES: Final = 0.3
_SYNC_SECONDS: Final = 0.0003
_MEMORY: Final = Path("/dev/shm")


@attrs.frozen
class Broken:
    """A violated guarantee.

    :ivar run: seed of the run
    :ivar where: the crash point, or both of them
    :ivar kept: path of the image, if it was written out
    """

    run: str
    where: str
    image: str
    what: str
    kept: Path | None = None

    def __str__(self) -> str:
        place = f" [{self.kept}]" if self.kept else ""
        return f"run {self.run}, {self.where}, image {self.image!r}: {self.what}{place}"


class _Enough(Exception):
    """Enough violations were found; no more images are needed."""


@attrs.define
class SimulationResult:
    """The result of a simulation.

    :ivar images: number of images that were checked, all different within a run
    :ivar second: number of these that result from a crash during recovery, or shortly after it
    :ivar runs: number of workloads
    :ivar seconds: CPU time of this process, its threads included
    :ivar violations: in the order in which they were found
    """

    plan: CrashPlan
    seed: int
    images: int = 0
    second: int = 0
    runs: int = 0
    seconds: float = 0.0
    violations: list[Broken] = attrs.field(factory=list)

    def command(self) -> str:
        """The call that reproduces it."""
        return f"simulate({self.plan.expression()}, images={self.images}, seed={self.seed})"

    def __str__(self) -> str:
        texts = [f"{self.images} images, {len(self.violations)} violations; {self.command()}"]
        return "\n".join(texts + [f"  {each}" for each in self.violations[:10]])


def simulate(
    plan: CrashPlan,
    images: int = 1000,
    seed: int = 0,
    *,
    keep: Path | None = None,
    most_violations: int = 1,
) -> SimulationResult:
    """Crash stores of ``plan``, up to a number of checked images, or of violations.

    :param keep: a folder for images that violate a guarantee
    :param most_violations: limit of violations
    """
    outcome, started = SimulationResult(plan, seed), time.process_time()
    with _scratch(plan.in_memory) as name, _undisturbed():
        folder, checker = Path(name), Checker(Opener.of(plan))
        simulation = _Simulation(plan, checker, folder, outcome, keep, images, most_violations)
        while outcome.images < images and len(outcome.violations) < most_violations:
            with suppress(_Enough):
                simulation.run(f"{seed}.{outcome.runs}")
            outcome.runs += 1
            gc.collect()
            outcome.seconds = time.process_time() - started
    return outcome


def _scratch(in_memory: bool) -> TemporaryDirectory[str]:
    """A folder in memory, if available and supported by the writer."""
    is_there = Path(gettempdir()).is_relative_to(_MEMORY)
    place = _MEMORY if in_memory and _MEMORY.is_dir() and not is_there else None
    return TemporaryDirectory(prefix="lakelog-crash-", dir=place, ignore_cleanup_errors=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Disable the garbage collector, which would scan all crash points repeatedly, and logging.

    Every recovery writes messages.
    """
    enabled, level = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        if enabled:
            gc.enable()


def _different(
    points: Sequence[CrashPoint], count: int, rng: Random, most: int
) -> Iterator[tuple[CrashPoint, Image, str]]:
    """Yield different images of ``count`` points and of each clean close, with their points.

    The latest points come first: of equal images, the latest has the most guarantees.
    """
    chosen = rng.sample(range(len(points)), min(len(points), count))
    closed = [number for number, point in enumerate(points) if point.where == CLOSED]
    numbers = {id(points[number]): number for number in sorted({*chosen, *closed}, reverse=True)}
    for point, image in different([points[number] for number in numbers.values()], rng, most):
        yield point, image, f"point {numbers[id(point)]} ({point.where})"


def _some_tool(rng: Random, share: float) -> Tool | None:
    return rng.choice(TOOLS) if rng.random() < share else None


@attrs.frozen
class _Simulation:
    """Runs workloads one after the other, and crashes each.

    :ivar folder: for the store of the present run, and for the image that is checked
    :ivar outcome: what was found so far, which the runs add to
    :ivar keep: a folder for images that violate a guarantee
    :ivar most: number of images after which a run checks no more
    :ivar most_violations: number of violations after which :class:`_Enough` is raised
    """

    plan: CrashPlan
    checker: Checker
    folder: Path
    outcome: SimulationResult
    keep: Path | None
    most: int
    most_violations: int

    def run(self, seed: str) -> None:
        """Run one workload, and check its crashes."""
        rng = Random(seed)
        root = self.folder / "run"
        root.mkdir()
        ledger = Ledger(put_is_durable=self.plan.promises)
        system = SimFileSystem(root, ledger.moment, _SYNC_SECONDS if self.plan.has_threads else 0)
        system.recording = self.plan.points_per_run > 0
        workload = self._workload(root, system, ledger, rng, threads=self.plan.has_threads)
        try:
            run = workload.run_to_failure if self.plan.failing_sync else workload.run
            run(self.plan.steps)
            self._note_leaks(system, seed)
        except PluginError:
            raise
        except Exception as error:  # noqa: BLE001  # any failure without a crash is a violation
            self._broken(seed, "no crash", None, f"{type(error).__name__}: {error}")
        finally:
            system.close()
            shutil.rmtree(root)
        self._crash(system.points, ledger, rng, seed)

    def _workload(
        self, root: Path, system: SimFileSystem, ledger: Ledger, rng: Random, *, threads: bool
    ) -> Workload:
        plan, opener = self.plan, self.checker.opener
        may_roll = plan.interleave and plan.body_bytes is None
        interleave = may_roll and rng.random() < _INTERLEAVED_SHARE
        return Workload(root / STORE, opener, system, ledger, rng, plan, threads, interleave)

    def _note_leaks(self, system: SimFileSystem, seed: str) -> None:
        leaks = system.leaks()
        if leaks:
            self._broken(seed, "no crash", None, f"names changed past the file system: {leaks}")
        for trespass in system.trespasses:
            self._broken(seed, "no crash", None, f"a full disk would be SIGBUS: {trespass}")

    def _crash(self, points: list[CrashPoint], ledger: Ledger, rng: Random, seed: str) -> None:
        count = self.plan.points_per_run
        for point, image, where in _different(points, count, rng, _IMAGES_OF_A_POINT):
            expected = ledger.expected(point.before, point.after)
            self._check(image, point, expected, rng, (seed, where))
            if rng.random() * self.plan.images_per_second_crash < 1:
                again = nothing_lost(point.state) if rng.random() < 0.5 else image
                after = point.state if again.kind == KILL else None
                self._crash_again(again, after, expected, rng, (seed, where))
            if self.outcome.images >= self.most:
                return

    def _check(
        self, image: Image, point: CrashPoint, expected: Expected, rng: Random, at: tuple[str, str]
    ) -> None:
        """Check an image, also for ``abort``: RocketMQ takes a directory without it as closed."""
        is_open = point.before.is_open and point.after.is_open
        if is_open and f"{STORE}/{ABORT_FILE}" not in image.files:
            self._broken(*at, image, "no abort file, and the store was open")
        self.outcome.images += 1
        tool = _some_tool(rng, _TOOL_SHARE)
        path = self.folder / "image"
        image.write_out(path)
        try:
            self.checker.check(path / STORE, expected, rng, self._files(image), tool)
        except Violation as violation:
            self._broken(*at, image, str(violation))
        finally:
            shutil.rmtree(path)

    def _files(self, image: Image) -> LogBytes:
        return LogBytes(image.files, STORE, self.checker.opener.settings.core.segment_size_bytes)

    def _crash_again(
        self,
        image: Image,
        after: FrozenState | None,
        expected: Expected,
        rng: Random,
        at: tuple[str, str],
    ) -> None:
        """Run recovery and some more actions, and crash that."""
        root = self.folder / "again"
        image.write_out(root)
        if after is None:  # after a kill, visible content may not be durable, and may be lost
            expected = attrs.evolve(expected, aside=self._files(image).whole(expected.may))
        ledger = Ledger(put_is_durable=self.plan.promises, before=expected)
        system = SimFileSystem(root, ledger.moment, after=after)
        workload = self._workload(root, system, ledger, rng, threads=False)
        try:
            self._go_on(workload, expected)
        except Exception as error:  # noqa: BLE001  # any exception is a violation
            kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
            self._broken(at[0], f"{at[1]}, and on", image, f"{kind}{error}")
        finally:
            system.close()
            shutil.rmtree(root)
        self._crash_second(system.points, ledger, rng, at)

    def _go_on(self, workload: Workload, expected: Expected) -> None:
        tool = _some_tool(workload.rng, _TOOL_SHARE_OF_SECOND_CRASHES)
        if tool is not None:
            self.checker.mended(workload.path, tool, workload.system)
        store = workload.open()
        flushed, workload.ledger.flushed = workload.ledger.flushed, int
        try:
            kept = self.checker.examine(store, expected, workload.rng)
            workload.ledger.opened(kept)
            workload.ledger.flushed = flushed
            workload.system.point("recovered")
            for _ in range(workload.rng.randint(1, 4)):
                workload.act(store)
        except BaseException:
            with suppress(Exception):
                store.close()
            raise
        workload.close(store)

    def _crash_second(
        self, points: list[CrashPoint], ledger: Ledger, rng: Random, at: tuple[str, str]
    ) -> None:
        count, most = _POINTS_OF_A_SECOND_CRASH, _IMAGES_OF_A_SECOND_POINT
        for point, image, where in _different(points, count, rng, most):
            place = (at[0], f"{at[1]}, second crash at {where}")
            expected = ledger.expected(point.before, point.after)
            self._check(image, point, expected, rng, place)
            self.outcome.second += 1

    def _broken(self, run: str, where: str, image: Image | None, what: str) -> None:
        kept = None
        if image is not None and self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            kept = self.keep / f"{run}-{len(self.outcome.violations)}"
            if not kept.exists():
                image.write_out(kept)
        kind = image.kind if image else ""
        self.outcome.violations.append(Broken(run, where, kind, what, kept))
        if len(self.outcome.violations) >= self.most_violations:
            raise _Enough


# --- many images, in several processes ---

_IMAGES_OF_A_TASK: Final = 1_000
_SEEDS_APART: Final = 1_000_000
_SMALL_BODY_BYTES: Final = 40
_VARIANTS: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {},
    {"body_bytes": _SMALL_BODY_BYTES},
    {},
    {},
    {"failing_sync": True},
)
"""Of the tasks of a pair: one has small messages in one queue, in one a sync fails in each run."""


def run_all(
    pairs: Sequence[tuple[str, str]],
    images: int,
    seed: int,
    processes: int,
    keep: Path | None = None,
) -> Iterator[SimulationResult]:
    """Yield the result of each task as it ends.

    The pairs of writer and flush strategy alternate, so that a run may be stopped at any time.

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
    for number, start in enumerate(range(0, images, _IMAGES_OF_A_TASK)):
        more = _VARIANTS[number % len(_VARIANTS)]
        for writer, flush in pairs:
            plan = CrashPlan(writer=writer, flush=flush, **more)
            yield plan, min(images - start, _IMAGES_OF_A_TASK), seed + number * _SEEDS_APART


def _run(plan: CrashPlan, images: int, seed: int, keep: Path | None) -> SimulationResult:
    folder = keep / f"{plan.writer}-{plan.flush}-{seed}" if keep else None
    return simulate(plan, images, seed, keep=folder, most_violations=3)
