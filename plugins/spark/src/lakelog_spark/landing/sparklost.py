"""A JVM of Spark that was killed: this process cannot get another one, so it has to end.

Trouble of a job, such as executors that were killed too often, may pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from lakelog.threads import started
from lakelog_spark.landing.errors import NotNow, SparkLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NETWORK: Final = ("py4j.protocol", "Py4JNetworkError")
_ASK_SECONDS: Final = 1.0


def is_lost(error: BaseException) -> bool:
    """Whether ``error`` says that nobody answers at the JVM's end of the line.

    Catalogs are asked by libraries that have their own errors for the like.
    """
    kind = type(error)
    return isinstance(error, ConnectionError) or (kind.__module__, kind.__name__) == _NETWORK


@contextmanager
def running_job(session: SparkSession) -> Iterator[None]:
    """Raises :class:`.NotNow` where Spark gives up a job, and :class:`.SparkLost`."""
    from lakelog_spark.lake.errors import SparkFailed
    from lakelog_spark.lake.sparkjob import told

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
