"""Converts errors of Spark's jobs and statements to errors of lakelog with one line of text."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from lakelog.runtime.threads import started
from lakelog_lake.errors import SparkFailed, SparkLost, StatementRefused, TemporaryTaskError
from lakelog_lake.landing.committing import is_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARKS_OWN: Final = "SQLQueryContextLogger"
_OURS: Final = re.compile(r"^lakelog(?:_\w+)?(?:\.\w+)*\.[A-Z]\w+: (.*)$", re.MULTILINE)
_STATEMENT: Final = re.compile(r";?\s*line \d+ pos \d+.*", re.DOTALL)
_ASK_SECONDS: Final = 1.0


@contextmanager
def query_errors(what: str) -> Iterator[None]:
    """Convert Spark's errors in the block to :class:`SparkFailed`.

    Errors raised before a statement runs become :class:`StatementRefused`.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger(_SPARKS_OWN)  # a plain logger rejects its messages
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # it would print the error as JSON
    try:
        yield
    except (PySparkException, Py4JError) as error:
        refused = isinstance(error, AnalysisException)
        kind = StatementRefused if refused else SparkFailed
        raise kind(f"{what}: {_reason(str(error))}") from error
    finally:
        logger.setLevel(level)


def _reason(text: str) -> str:
    """The text of lakelog's own error, if a task raised one; else the first line."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    lines = [line for line in _STATEMENT.sub("", text.strip()).splitlines() if line.strip()]
    return lines[0] if lines else "it gave no reason"


@contextmanager
def running_job(session: SparkSession) -> Iterator[None]:
    """Convert the errors of a job in the block.

    Raises :class:`TemporaryTaskError` if Spark aborts the job, and :class:`SparkLost` if the
    session has ended.
    """
    try:
        with query_errors("Spark cannot write data files"), _noticing():
            yield
    except SparkFailed as error:
        with _noticing():
            if session.sparkContext._jsc.sc().isStopped():
                raise SparkLost(str(error)) from error
        raise TemporaryTaskError(
            f"{error}: nothing is lost, the range lands in a later pass"
        ) from error


@contextmanager
def _noticing() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_lost(error):
            raise SparkLost(f"the JVM does not answer: {error}") from error
        raise


@contextmanager
def answering(session: SparkSession, on_answer: Callable[[], None]) -> Iterator[None]:
    """Call the JVM every second, in a thread, and ``on_answer`` after each response."""
    over = Event()

    def ask() -> None:
        while not over.wait(_ASK_SECONDS):
            with suppress(Exception):  # the thread that waits for the job gets the error as well
                session.sparkContext.statusTracker().getActiveStageIds()
                on_answer()

    asking = started(Thread(target=ask, name="lakelog-spark-answers", daemon=True))
    try:
        yield
    finally:
        over.set()
        asking.join()
