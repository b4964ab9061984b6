"""What Spark says when it ends a job or refuses a statement, as an error in one line."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from lakelog.runtime.threads import started
from lakelog_lake.errors import NotNow, SparkFailed, SparkLost, StatementRefused
from lakelog_lake.landing.reaching import is_lost
from lakelog_spark.sessions.fitting import need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARKS_OWN: Final = "SQLQueryContextLogger"
_OURS: Final = re.compile(r"^lakelog(?:_\w+)?\.[\w.]*errors\.\w+: (.*)$", re.MULTILINE)
_STATEMENT: Final = re.compile(r";?\s*line \d+ pos \d+.*", re.DOTALL)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Raise :class:`SparkFailed` for what Spark raises inside of the block.

    Raise :class:`StatementRefused` where Spark did not begin with the statement.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger(_SPARKS_OWN)  # a plain one could not take its messages
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # it prints the error too, as JSON
    try:
        yield
    except (PySparkException, Py4JError) as error:
        refused = isinstance(error, AnalysisException)
        kind = StatementRefused if refused else SparkFailed
        raise kind(f"{what}: {_reason(str(error))}") from error
    finally:
        logger.setLevel(level)


def _reason(text: str) -> str:
    """The line of lakelog's own error, if a task met one; else the first line."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    lines = [line for line in _STATEMENT.sub("", text.strip()).splitlines() if line.strip()]
    return lines[0] if lines else "it gave no reason"


_ASK_SECONDS: Final = 1.0


@contextmanager
def running_job(session: SparkSession) -> Iterator[None]:
    """Raises :class:`.NotNow` where Spark gives up a job, and :class:`.SparkLost`."""
    from lakelog_lake.errors import SparkFailed

    try:
        with told("Spark cannot write data files"), _noticing():
            yield
    except SparkFailed as error:
        with _noticing():
            if session.sparkContext._jsc.sc().isStopped():
                raise SparkLost(str(error)) from error
        raise NotNow(f"{error}: nothing is lost, the range lands in a later pass") from error


@contextmanager
def _noticing() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_lost(error):
            raise SparkLost(f"its JVM does not answer: {error}") from error
        raise


@contextmanager
def answering(session: SparkSession, on_answer: Callable[[], None]) -> Iterator[None]:
    """Ask the JVM every second, in a thread, whether it is there; tell ``on_answer`` if it is."""
    over = Event()

    def ask() -> None:
        while not over.wait(_ASK_SECONDS):
            with suppress(Exception):  # the thread that waits for the job hears of it, too
                session.sparkContext.statusTracker().getActiveStageIds()
                on_answer()

    asking = started(Thread(target=ask, name="lakelog-spark-answers", daemon=True))
    try:
        yield
    finally:
        over.set()
        asking.join()


def stop(session: SparkSession) -> None:
    """End a session, or what is left of it."""
    with suppress(Exception):  # whatever it is: its JVM has ended, or does so with this process
        session.stop()


@contextmanager
def spark_session(warehouse: Path | None, master: str | None) -> Iterator[SparkSession]:
    """The session that is there, or one that ends with the block."""
    need_spark()
    from pyspark.sql import SparkSession

    from lakelog_spark.sessions.local import session

    there = SparkSession.getActiveSession()
    started = session(warehouse, master=master)
    try:
        yield started
    finally:
        if there is None:
            started.stop()
