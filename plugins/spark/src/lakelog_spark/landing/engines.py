"""Who runs tasks: this process, a pool of processes, or Spark; the task is the same function."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Protocol, Self

import attrs

from lakelog.errors import LakelogError
from lakelog_spark.landing.datafiles import Task, Written, write
from lakelog_spark.landing.errors import MayPass, NotNow, TaskFailed, WorkerLost
from lakelog_spark.landing.leftovers import discard
from lakelog_spark.landing.sparklost import running_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """Runs tasks, in any order; gives their results in the order of the tasks."""

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Written]:
        """Raises :class:`TaskFailed` where one of them cannot be done."""


def in_process(tasks: Sequence[Task]) -> Sequence[Written]:
    """One after the other, here."""
    done: list[Written] = []
    try:
        for each in tasks:
            done.append(write(each))  # noqa: PERF401  # what is done is needed when one fails
    except BaseException:
        _drop(done)
        raise
    return done


@contextmanager
def processes(count: int | None = None) -> Iterator[Engine]:
    """Up to ``count`` processes, one per core without it; a single task runs here."""
    with _Pool(count) as workers:

        def run(tasks: Sequence[Task]) -> Sequence[Written]:
            return in_process(tasks) if len(tasks) < 2 else _checked(workers.run(tasks))

        yield run


class _Pool:
    """Processes that start when they are needed, and anew after one of them was killed."""

    def __init__(self, count: int | None) -> None:
        self._count = count
        self._running: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.shutdown()
            self._running = None

    def run(self, tasks: Sequence[Task]) -> list[Written | _Failed]:
        """Raises :class:`.WorkerLost`."""
        if self._running is None:
            self._running = pool(self._count)
        try:
            return list(self._running.map(_guarded, tasks))
        except BrokenProcessPool:
            self.__exit__()
            raise WorkerLost from None


def pool(count: int | None = None) -> ProcessPoolExecutor:
    """Processes that end with this one, however it ends; they start with the first task."""
    context = multiprocessing.get_context("forkserver")
    count = count or len(os.sched_getaffinity(0))
    return ProcessPoolExecutor(count, context, initializer=_follow_parent)


def spark(session: SparkSession) -> Engine:
    """A task of Spark for each; executors see the store and the table under the same paths."""

    def run(tasks: Sequence[Task]) -> Sequence[Written]:
        if not tasks:
            return []
        with running_job(session):
            spread = session.sparkContext.parallelize(list(tasks), len(tasks))
            found = spread.map(_guarded).collect()
        return _checked(found)

    return run


def _follow_parent() -> None:
    """In a process of the pool: end with the one that gives it tasks, and leave signals to it."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@attrs.frozen
class _Failed:
    """An error on its way between processes, which not every error survives.

    :ivar may_pass: whether it is worth another try
    """

    what: str
    may_pass: bool


def _guarded(task: Task) -> Written | _Failed:
    try:
        return write(task)
    except LakelogError as error:
        return _Failed(str(error), isinstance(error, MayPass))


def _checked(results: Sequence[Written | _Failed]) -> list[Written]:
    done = [each for each in results if isinstance(each, Written)]
    for each in results:
        if isinstance(each, _Failed):
            _drop(done)
            raise (NotNow if each.may_pass else TaskFailed)(each.what)
    return done


def _drop(done: Sequence[Written]) -> None:
    """A range lands as a whole, or other files of it do."""
    for each in done:
        discard(file for part in each.parts.values() for file in part.files)
