"""Engines that run tasks: this process, or a pool of processes; Spark runs the same function.

The files of a pass that a thread writes while the previous pass is committed.

No version of a table lists these files yet. The caller either uses them for the pass with the same
start, or removes them. Both wait until the tasks are done.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol, Self

import attrs

import lakelog
from lakelog.errors import LakelogError
from lakelog.runtime.threads import soon_done, started
from lakelog_lake.engine_provider import nothing
from lakelog_lake.errors import TaskFailed, TemporaryError, TemporaryTaskError, WorkerLost
from lakelog_lake.log.ends import CachedStore
from lakelog_lake.log.range_reader import LogSpan
from lakelog_lake.tables.data_files import discard
from lakelog_lake.tasks.task import Task, Written, write


class Engine(Protocol):
    """Runs tasks in any order; returns their results in the order of the tasks."""

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Written]:
        """Run ``tasks``; raises :class:`TaskFailed` if any task fails."""


def _not_open(_path: Path) -> None:
    """The default of ``opened``: the store is not open."""


def in_process(
    tasks: Sequence[Task],
    on_done: Callable[[], None] = nothing,
    opened: Callable[[Path], lakelog.Store | None] = _not_open,
) -> Sequence[Written]:
    """An engine that runs tasks one by one in this process.

    :param on_done: called after each task
    :param opened: returns the store if it is open
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
    """An engine of up to ``count`` processes, by default one per core; a single task runs here.

    :param on_done: called after each task, in their order
    """
    with _Pool(count) as workers:

        def run(tasks: Sequence[Task]) -> Sequence[Written]:
            if len(tasks) < 2:
                return workers.run_here(tasks, on_done)
            return checked(workers.run(tasks, on_done))

        yield run


class _Pool:
    """A pool of processes that is started on demand, and again after one of them was killed.

    Tasks run in this process use a store that stays open between passes.
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
        """Run tasks in this process; after an error the store is opened again."""
        try:
            return in_process(tasks, on_done, self._opened)
        except BaseException:
            self._let_go()
            raise

    def run(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> list[Written | Failed]:
        """Run tasks in the pool; return results and errors in the order of the tasks.

        Raises :class:`.WorkerLost` if a process ended.
        """
        if self._running is None:
            self._running = pool(self._count)
        try:
            return list(_reporting(self._running.map(guarded, tasks), on_done))
        except BrokenProcessPool:
            self.__exit__()
            raise WorkerLost from None


def _reporting(
    found: Iterable[Written | Failed], on_done: Callable[[], None]
) -> Iterator[Written | Failed]:
    for each in found:
        on_done()
        yield each


def pool(count: int | None = None) -> ProcessPoolExecutor:
    """A pool of processes that end with this one, even if killed; started by the first task."""
    context = multiprocessing.get_context("forkserver")
    count = count or len(os.sched_getaffinity(0))
    return ProcessPoolExecutor(count, context, initializer=_follow_parent)


def _follow_parent() -> None:
    """Prepare a worker: it ends with its parent process, and ignores SIGINT and SIGTERM."""
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
    """An error sent between processes, as not every exception can be pickled.

    :ivar may_pass: whether it is a temporary error
    """

    what: str
    may_pass: bool


def guarded(task: Task) -> Written | Failed:
    """Run a task in another process; return its error as a value."""
    try:
        return write(task)
    except LakelogError as error:
        return Failed(str(error), isinstance(error, TemporaryError))


def checked(results: Sequence[Written | Failed]) -> list[Written]:
    """Return the results; if a task failed, remove all files and raise :class:`TaskFailed`."""
    done = [each for each in results if isinstance(each, Written)]
    for each in results:
        if isinstance(each, Failed):
            drop(done)
            raise (TemporaryTaskError if each.may_pass else TaskFailed)(each.what)
    return done


def drop(done: Sequence[Written]) -> None:
    """Remove the files of tasks, as a range lands as a whole or is written again."""
    for each in done:
        discard(file for part in each.parts.values() for file in part.files)


_NAME: Final = "lakelog-landing-ahead"


@attrs.frozen
class ReadAhead:
    """One pass written ahead.

    :ivar spans: the ranges of the log of this pass
    :ivar _starts: the tables with the start offsets that the pass assumes
    """

    spans: Sequence[LogSpan]
    _starts: Sequence[tuple[Any, int]]
    _written: Future[Sequence[Written]]

    @classmethod
    def begun(
        cls,
        spans: Sequence[LogSpan],
        starts: Sequence[tuple[Any, int]],
        write: Callable[[], Sequence[Written]],
    ) -> ReadAhead:
        """Start ``write`` in a thread; run it here if the system can start no thread."""
        return cls(spans, starts, soon_done(_in_a_thread, _NAME, write))

    def is_of(self, starts: Sequence[tuple[Any, int]]) -> bool:
        """Whether it was written for these tables and start offsets."""
        return list(self._starts) == list(starts)

    def written(self) -> Sequence[Written]:
        """Wait for the results of its tasks; raises their errors."""
        return self._written.result()

    def drop(self) -> None:
        """Wait, and remove its files; the engine has removed those of failed tasks."""
        with suppress(Exception):
            drop(self.written())


def _in_a_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name=_NAME, daemon=True).start()
