"""Who runs tasks: this process, a pool of processes, or Spark; the task is the same function."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Protocol

import attrs

from lakelog.errors import LakelogError
from lakelog_spark.landing.datafiles import Task, Written, write
from lakelog_spark.landing.errors import TaskFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """Runs tasks, in any order; gives their results in the order of the tasks."""

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Written]:
        """Raises :class:`TaskFailed` where one of them cannot be done."""


def in_process(tasks: Sequence[Task]) -> Sequence[Written]:
    """One after the other, here."""
    return [write(each) for each in tasks]


@contextmanager
def processes(count: int | None = None) -> Iterator[Engine]:
    """Up to ``count`` processes, one per core without it; a single task runs here."""
    with pool(count) as workers:

        def run(tasks: Sequence[Task]) -> Sequence[Written]:
            if len(tasks) < 2:
                return in_process(tasks)
            return [_checked(each) for each in workers.map(_guarded, tasks)]

        yield run


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
        spread = session.sparkContext.parallelize(list(tasks), len(tasks))
        return [_checked(each) for each in spread.map(_guarded).collect()]

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
    """An error on its way between processes, which not every error survives."""

    what: str


def _guarded(task: Task) -> Written | _Failed:
    try:
        return write(task)
    except LakelogError as error:
        return _Failed(str(error))


def _checked(result: Written | _Failed) -> Written:
    if isinstance(result, _Failed):
        raise TaskFailed(result.what)
    return result
