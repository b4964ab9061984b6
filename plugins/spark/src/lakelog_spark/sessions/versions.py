"""Checks the version of Spark, and the jars of a session that lakelog did not start."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from lakelog_lake.errors import WrongSpark
from lakelog_spark.sessions.package import DELTA_JAR, ICEBERG_JAR, Jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = "4.1"
_MEANT_FOR: Final = re.compile(r"(?:iceberg-spark-runtime|delta-spark)[-_](\d+\.\d+)_")
_MARKS: Final = {
    ICEBERG_JAR: "org.apache.iceberg.spark.SparkCatalog",
    DELTA_JAR: "io.delta.sql.DeltaSparkSessionExtension",
}
"""A class of each jar, whose presence shows that the session has the jar."""


def need_spark() -> None:
    """Raise :class:`~lakelog_lake.errors.WrongSpark` if PySpark is not installed."""
    if find_spec("pyspark") is None:
        raise WrongSpark("this needs pyspark, which is not installed: pip install 'lakelog[spark]'")


def check_spark(version: str, what: str = "the installed PySpark") -> None:
    """Raise :class:`~lakelog_lake.errors.WrongSpark` for an unsupported ``version``."""
    if not version.startswith(f"{SPARK}."):
        raise WrongSpark(
            f"{what} is {version}, but lakelog-spark works with {SPARK}: with others Iceberg's "
            "runtime fails, or a source cannot filter or stream; pip install 'pyspark==4.1.4'"
        )


def check_jar(session: SparkSession, jar: Jar) -> None:
    """Raise :class:`~lakelog_lake.errors.WrongSpark` unless ``session`` has a matching jar."""
    place = _place(session, _MARKS[jar])
    if place is None:
        raise WrongSpark(
            f"this Spark session was started without {jar.name}: start it with "
            f"--packages {jar.coordinates}, or let lakelog_spark.session() start it"
        )
    meant = _MEANT_FOR.search(place)
    if meant is not None and meant[1] != SPARK:
        raise WrongSpark(
            f"this Spark session has {place}, which is for Spark {meant[1]}, but Spark is "
            f"{session.version}: use {jar.coordinates}"
        )


def _place(session: SparkSession, name: str) -> str | None:
    """The location of the jar with the class ``name``; ``None`` without such a class."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types

    jvm: Any = session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        found = loader.loadClass(name)
    except Py4JJavaError:
        return None
    source = found.getProtectionDomain().getCodeSource()
    return "" if source is None else unquote(str(source.getLocation().toString()))
