"""Jars for Spark: downloaded once, then used from the local cache.

Spark downloads packages with Ivy, whose folder does not support concurrent downloads. So downloads
are serialised here by a lock. Ivy renames a file to its final name once it is complete.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs


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
DELTA: Final = Package(
    (DELTA_JAR,),
    (
        *(
            Jar("io.delta", name, _DELTA)
            for name in (
                "delta-storage",
                "delta-kernel-api",
                "delta-kernel-defaults",
                "delta-kernel-unitycatalog",
            )
        ),
        *(
            Jar("io.unitycatalog", name, _UNITY)
            for name in ("unitycatalog-client", "unitycatalog-hadoop")
        ),
    ),
)
OF_SPARK: Final = (
    *("com.fasterxml.jackson.core:*", "com.fasterxml.jackson.datatype:*", "com.github.luben:*"),
    *("com.google.code.findbugs:*", "commons-logging:*", "commons-pool:*", "io.airlift:*"),
    *("javax.annotation:*", "org.apache.hadoop:*", "org.apache.logging.log4j:*"),
    *("org.apache.parquet:*", "org.locationtech.jts:*", "org.roaringbitmap:*", "org.slf4j:*"),
    "org.xerial.snappy:*",
)
"""Dependencies that Spark has in other versions, or that are not used here: 80 MB."""


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
