"""Iceberg's package for Spark: downloaded once, then used from where it lies.

Spark downloads packages by Ivy, whose folder bears no two downloads at once: they wait here for
one another. Ivy gives a file its name when it is whole.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

GROUP: Final = "org.apache.iceberg"
NAME: Final = "iceberg-spark-runtime-4.1_2.13"
VERSION: Final = "1.12.0"
"""The one that fits the PySpark that this distribution asks for."""


@contextmanager
def iceberg_package(ivy: Path | None = None) -> Iterator[dict[str, str]]:
    """What to tell a session about the package; start it inside of the ``with``.

    :param ivy: Ivy's folder, else the one that Spark uses; it is made if need be
    """
    ivy = ivy or Path.home() / ".ivy2.5.2"
    ivy.mkdir(parents=True, exist_ok=True)
    jar = ivy / "cache" / GROUP / NAME / "jars" / f"{NAME}-{VERSION}.jar"
    if jar.exists():  # saves seconds and many lines of output
        yield {"spark.jars": str(jar)}
        return
    with (ivy / "lakelog.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield {"spark.jars.packages": f"{GROUP}:{NAME}:{VERSION}", "spark.jars.ivy": str(ivy)}
