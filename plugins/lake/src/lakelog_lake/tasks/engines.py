"""Engines that run tasks: this process, or a pool of processes; Spark runs the same function.

Each process runs consecutive tasks, whose rows it gathers in the same files. A thread may run the
tasks of a pass while the previous pass is committed (:class:`ReadAhead`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol

import attrs

import lakelog
from lakelog.errors import LakelogError
from lakelog.runtime.threads import soon_done, started
from lakelog_lake.engine_provider import nothing
from lakelog_lake.errors import (
    TableMismatch,
    TaskFailed,
    TemporaryError,
    TemporaryTaskError,
    WorkerLost,
)
from lakelog_lake.log import extent, records
from lakelog_lake.tables.data_files import PartitionFiles, discard
from lakelog_lake.tasks.task import Task, Written, write


class Engine(Protocol):
    """Runs tasks in any order; returns their results in the order of the tasks."""

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Written]:
        """Run ``tasks``; raises :class:`TaskFailed` if any task fails."""


def in_process(
    tasks: Sequence[Task],
    on_done: Callable[[], None] = nothing,
    opened: Callable[[Path], lakelog.Store | None] = lambda _: None,
) -> Sequence[Written]:
    """An engine that runs tasks one by one in this process.

    :param on_done: called after each task
    :param opened: returns the store if it is open
    """
    done: list[Written] = []
    with PartitionFiles() as files:
        for each in tasks:
            done.append(write(each, files, opened(each.source.path)))
            on_done()
        return [*done[:-1], *(each.with_files(files.finished()) for each in done[-1:])]


def shares(tasks: Sequence[Task], at_once: int) -> list[Sequence[Task]]:
    """Divide the tasks of a pass among ``at_once`` workers; each gets consecutive ones.

    Each worker writes files of its own. So there are no more of them than there are files of the
    requested size in the pass.
    """
    size = tasks[-1].span.end - tasks[0].span.start if tasks else 0
    count = min(at_once, len(tasks), -(-size // tasks[0].file_bytes) if tasks else 0)
    ends = [len(tasks) * number // count for number in range(1, count + 1)]
    return [tasks[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@contextmanager
def processes(count: int | None = None, on_done: Callable[[], None] = nothing) -> Iterator[Engine]:
    """An engine of up to ``count`` processes, by default one per core; a single share runs here.

    The processes are started on demand, and again after one of them was killed. Tasks run in this
    process use a store that stays open between passes.

    :param on_done: called after each task
    """
    kept: dict[Path, extent.CachedStore] = {}
    running: list[tuple[ProcessPoolExecutor, Connection]] = []
    most = count or len(os.sched_getaffinity(0))

    def opened(path: Path) -> lakelog.Store:
        return kept.setdefault(path, extent.CachedStore(path)).now()

    def release() -> None:
        """Close the store and end the processes; both start again if needed."""
        while kept:
            kept.popitem()[1].close()
        while running:
            running.pop()[0].shutdown()

    def run(tasks: Sequence[Task]) -> Sequence[Written]:
        divided = shares(tasks, most)
        if len(divided) > 1 and not running:
            heard, said = multiprocessing.Pipe(duplex=False)
            running.append((pool(most, said), heard))
        try:
            if len(divided) > 1:
                return checked(_spread(*running[0], divided, on_done))
            return in_process(tasks, on_done, opened)
        except BaseException as error:
            release()
            if isinstance(error, BrokenProcessPool):
                raise WorkerLost from None
            raise

    try:
        yield run
    finally:
        release()


_TICK_SECONDS: Final = 0.2
_TASK_DONE: Final = b"1"


def _spread(
    workers: ProcessPoolExecutor,
    done: Connection,
    divided: Sequence[Sequence[Task]],
    on_done: Callable[[], None],
) -> list[Written | Failed]:
    """Run each share in a process; ``done`` gets a message after each task."""
    pending = running = [workers.submit(_in_worker, each) for each in divided]
    while pending:
        pending = list(wait_for(pending, _TICK_SECONDS).not_done)
        while done.poll():
            done.recv_bytes()
            on_done()
    return list(chain.from_iterable(each.result() for each in running))


def pool(count: int, done: Connection | None = None) -> ProcessPoolExecutor:
    """A pool of processes that end with this one, even if killed; started by the first task.

    :param done: gets a message after each task
    """
    context = multiprocessing.get_context("forkserver")
    return ProcessPoolExecutor(count, context, initializer=_begin_worker, initargs=(done,))


_done: Connection | None = None
"""In a worker, the connection to its parent."""


def _begin_worker(done: Connection | None) -> None:
    global _done  # noqa: PLW0603  # the pool gives its workers nothing else
    _done = done
    _follow_parent()


def _in_worker(tasks: Sequence[Task]) -> Sequence[Written | Failed]:
    done = _done
    return guarded(tasks, nothing if done is None else partial(done.send_bytes, _TASK_DONE))


def _follow_parent() -> None:
    """Prepare a worker: it ends with its parent process, and ignores SIGINT and SIGTERM."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        end = partial(_end_with, parent.sentinel)
        started(Thread(target=end, name="lakelog-landing-parent", daemon=True))


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@attrs.frozen
class Failed:
    """An error sent between processes, as not every exception can be pickled.

    :ivar may_pass: whether it is a temporary error
    :ivar is_refused: whether the table cannot take a row, which no restart changes
    """

    what: str
    may_pass: bool
    is_refused: bool = False


def guarded(
    tasks: Sequence[Task], on_done: Callable[[], None] = nothing
) -> Sequence[Written | Failed]:
    """Run tasks in another process; return their error as a value."""
    try:
        return in_process(tasks, on_done)
    except LakelogError as error:
        is_refused = isinstance(error, TableMismatch)
        return [Failed(str(error), isinstance(error, TemporaryError), is_refused)]


def checked(results: Sequence[Written | Failed]) -> list[Written]:
    """Return the results; if a task failed, remove all files and raise :class:`TaskFailed`.

    Raises :class:`~lakelog_lake.errors.TableMismatch` for a row that the table does not take.
    """
    done = [each for each in results if isinstance(each, Written)]
    for each in results:
        if isinstance(each, Failed):
            drop(done)
            if each.is_refused:
                raise TableMismatch(each.what)
            raise (TemporaryTaskError if each.may_pass else TaskFailed)(each.what)
    return done


def drop(done: Sequence[Written]) -> None:
    """Remove the files of tasks, as a range lands as a whole or is written again."""
    for each in done:
        discard(file for part in each.parts.values() for file in part.files)


@attrs.frozen
class ReadAhead:
    """One pass written ahead, whose files no version of a table lists yet.

    The caller either uses them for the pass with the same start, or removes them. Both wait until
    the tasks are done.

    :ivar spans: the ranges of the log of this pass
    :ivar _starts: the tables with the start offsets and forms that the pass assumes
    """

    spans: Sequence[records.LogSpan]
    _starts: Sequence[tuple[Any, ...]]
    _written: Future[Sequence[Written]]

    @classmethod
    def begun(
        cls,
        spans: Sequence[records.LogSpan],
        starts: Sequence[tuple[Any, ...]],
        write: Callable[[], Sequence[Written]],
    ) -> ReadAhead:
        """Start ``write`` in a thread; run it here if the system can start no thread."""
        name = "lakelog-landing-ahead"
        return cls(spans, starts, soon_done(partial(_in_a_thread, name), name, write))

    def is_of(self, starts: Sequence[tuple[Any, ...]]) -> bool:
        """Whether it was written for these tables, start offsets and forms."""
        return list(self._starts) == list(starts)

    def written(self) -> Sequence[Written]:
        """Wait for the results of its tasks; raises their errors."""
        return self._written.result()

    def drop(self) -> None:
        """Wait, and remove its files; the engine has removed those of failed tasks."""
        with suppress(Exception):
            drop(self.written())


def _in_a_thread(name: str, work: Callable[[], None]) -> None:
    Thread(target=work, name=name, daemon=True).start()
