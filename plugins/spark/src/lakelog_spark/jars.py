"""The versions of Spark and its jars; jars are downloaded once, then used from the cache.

Spark downloads packages with Ivy, whose folder does not support concurrent downloads. So downloads
are serialised here by a lock. Ivy renames a file to its final name once it is complete.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import attrs

from lakelog_lake.errors import WrongSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_SPARK: Final = (
    *("com.fasterxml.jackson.core:*", "com.fasterxml.jackson.datatype:*", "com.github.luben:*"),
    *("com.google.code.findbugs:*", "commons-logging:*", "commons-pool:*", "io.airlift:*"),
    *("javax.annotation:*", "org.apache.hadoop:*", "org.apache.logging.log4j:*"),
    *("org.apache.parquet:*", "org.locationtech.jts:*", "org.roaringbitmap:*", "org.slf4j:*"),
    "org.xerial.snappy:*",
)
"""Dependencies that Spark has in other versions, or that are not used here: 80 MB."""
SPARK: Final = "4.1"
_MEANT_FOR: Final = re.compile(r"(?:iceberg-spark-runtime|delta-spark)[-_](\d+\.\d+)_")


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


@attrs.frozen
class Jar:
    """One file, by its Maven coordinates."""

    group: str
    name: str
    version: str

    @property
    def coordinates(self) -> str:
        """The coordinates in Spark's form."""
        return f"{self.group}:{self.name}:{self.version}"

    def within(self, ivy: Path) -> Path:
        """Its path in Ivy's folder."""
        return ivy / "cache" / self.group / self.name / "jars" / f"{self.name}-{self.version}.jar"


@attrs.frozen
class Package:
    """A package that is downloaded as a whole.

    :ivar asked: the coordinates to request
    :ivar brings: its dependencies that Spark does not have already
    """

    asked: tuple[Jar, ...]
    brings: tuple[Jar, ...] = ()

    @property
    def jars(self) -> tuple[Jar, ...]:
        """All jars of the package."""
        return (*self.asked, *self.brings)


_DELTA: Final = "4.4.0"
_UNITY: Final = "0.6.0"
ICEBERG_JAR: Final = Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")
DELTA_JAR: Final = Jar("io.delta", "delta-spark_4.1_2.13", _DELTA)
"""Both match the PySpark version that this distribution requires."""
ICEBERG: Final = Package((ICEBERG_JAR, Jar("org.xerial", "sqlite-jdbc", "3.50.3.0")))
_DELTA_PARTS: Final = ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")
DELTA: Final = Package(
    (DELTA_JAR,),
    (
        *(Jar("io.delta", f"delta-{part}", _DELTA) for part in _DELTA_PARTS),
        *(Jar("io.unitycatalog", f"unitycatalog-{part}", _UNITY) for part in ("client", "hadoop")),
    ),
)
_MARKS: Final = {
    ICEBERG_JAR: "org.apache.iceberg.spark.SparkCatalog",
    DELTA_JAR: "io.delta.sql.DeltaSparkSessionExtension",
}
"""A class of each jar, whose presence shows that the session has the jar."""


@contextmanager
def packages(wanted: Sequence[Package], ivy: Path | None = None) -> Iterator[dict[str, str]]:
    """Yield the Spark configuration for ``wanted``; the session must be started in the block.

    :param ivy: Ivy's folder, created if needed; by default the folder that Spark uses
    """
    if not wanted:
        yield {}
        return
    ivy = ivy or Path.home() / ".ivy2.5.2"
    ivy.mkdir(parents=True, exist_ok=True)
    if (found := _found(wanted, ivy)) is not None:  # skip Ivy: saves seconds and output
        yield found
        return
    with (ivy / "lakelog.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _found(wanted, ivy) or {
            "spark.jars.packages": ",".join(jar.coordinates for p in wanted for jar in p.asked),
            "spark.jars.excludes": ",".join(OF_SPARK),
            "spark.jars.ivy": str(ivy),
        }


def _found(wanted: Sequence[Package], ivy: Path) -> dict[str, str] | None:
    """The configuration if all files are there already."""
    paths = [jar.within(ivy) for package in wanted for jar in package.jars]
    if not all(path.exists() for path in paths):
        return None
    return {"spark.jars": ",".join(map(str, paths))}
