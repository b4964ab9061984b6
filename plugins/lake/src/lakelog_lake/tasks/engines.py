"""Who runs tasks: this process, or a pool of processes; Spark runs the same function."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol, Self

import attrs

import lakelog
from lakelog.errors import LakelogError
from lakelog.runtime.threads import started
from lakelog_lake.engine_provider import nothing
from lakelog_lake.errors import MayPass, NotNow, TaskFailed, WorkerLost
from lakelog_lake.log.cached_store import CachedStore
from lakelog_lake.tables.file_facts import discard
from lakelog_lake.tasks.task import Task, Written, write


class Engine(Protocol):
    """Runs tasks, in any order; gives their results in the order of the tasks."""

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Written]:
        """Raises :class:`TaskFailed` where one of them cannot be done."""


def _not_open(_path: Path) -> None:
    """Nobody has it open."""


def in_process(
    tasks: Sequence[Task],
    on_done: Callable[[], None] = nothing,
    opened: Callable[[Path], lakelog.Store | None] = _not_open,
) -> Sequence[Written]:
    """One after the other, here.

    :param on_done: called after each
    :param opened: gives a store that is open
    """
    done: list[Written] = []
    try:
        for each in tasks:
            done.append(write(each, opened(each.store_path)))
            on_done()
    except BaseException:
        drop(done)
        raise
    return done


@contextmanager
def processes(count: int | None = None, on_done: Callable[[], None] = nothing) -> Iterator[Engine]:
    """Up to ``count`` processes, one per core without it; a single task runs here.

    :param on_done: called after each task, in their order
    """
    with _Pool(count) as workers:

        def run(tasks: Sequence[Task]) -> Sequence[Written]:
            if len(tasks) < 2:
                return workers.run_here(tasks, on_done)
            return checked(workers.run(tasks, on_done))

        yield run


class _Pool:
    """Processes that start when they are needed, and anew after one of them was killed.

    What runs here finds the store open from one pass to the next.
    """

    def __init__(self, count: int | None) -> None:
        self._count = count
        self._kept: CachedStore | None = None
        self._running: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()
        if self._running is not None:
            self._running.shutdown()
            self._running = None

    def _let_go(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _opened(self, path: Path) -> lakelog.Store:
        if self._kept is None or self._kept.path != path:
            self._let_go()
            self._kept = CachedStore(path)
        return self._kept.now()

    def run_here(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> Sequence[Written]:
        """After an error everything is looked at anew."""
        try:
            return in_process(tasks, on_done, self._opened)
        except BaseException:
            self._let_go()
            raise

    def run(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> list[Written | Failed]:
        """Raises :class:`.WorkerLost`."""
        if self._running is None:
            self._running = pool(self._count)
        try:
            return list(_told(self._running.map(guarded, tasks), on_done))
        except BrokenProcessPool:
            self.__exit__()
            raise WorkerLost from None


def _told(
    found: Iterable[Written | Failed], on_done: Callable[[], None]
) -> Iterator[Written | Failed]:
    for each in found:
        on_done()
        yield each


def pool(count: int | None = None) -> ProcessPoolExecutor:
    """Processes that end with this one, however it ends; they start with the first task."""
    context = multiprocessing.get_context("forkserver")
    count = count or len(os.sched_getaffinity(0))
    return ProcessPoolExecutor(count, context, initializer=_follow_parent)


def _follow_parent() -> None:
    """In a process of the pool: end with the one that gives it tasks, and leave signals to it."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        started(
            threading.Thread(
                target=_end_with,
                args=(parent.sentinel,),
                name="lakelog-landing-parent",
                daemon=True,
            )
        )


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@attrs.frozen
class Failed:
    """An error on its way between processes, which not every error survives.

    :ivar may_pass: whether it is worth another try
    """

    what: str
    may_pass: bool


def guarded(task: Task) -> Written | Failed:
    """Do a task in another process; its error comes back as a value."""
    try:
        return write(task)
    except LakelogError as error:
        return Failed(str(error), isinstance(error, MayPass))


def checked(results: Sequence[Written | Failed]) -> list[Written]:
    """What was written; raises :class:`TaskFailed`, and removes all of it, if a task failed."""
    done = [each for each in results if isinstance(each, Written)]
    for each in results:
        if isinstance(each, Failed):
            drop(done)
            raise (NotNow if each.may_pass else TaskFailed)(each.what)
    return done


def drop(done: Sequence[Written]) -> None:
    """Remove the files of tasks: a range lands as a whole, or other files of it do."""
    for each in done:
        discard(file for part in each.parts.values() for file in part.files)
