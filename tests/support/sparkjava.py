"""Lets the Java processes of Spark start in a third of the time.

They compile less, and share an archive of the classes that Spark loads at its start. The archive is
made once for each Java and PySpark; Java does without it where it does not fit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from tests.support import maven
from tests.support.javaprogram import QUICK

_FLAGS: Final = (*QUICK, "-Xlog:disable", "-Xlog:all=error:stderr")
_LOADING: Final = """
from tempfile import TemporaryDirectory
import lakelog_spark
from pyspark import SparkContext

spark = lakelog_spark.session(master="local[1]")
with TemporaryDirectory() as folder:
    path = f"{folder}/numbers"
    spark.range(9).write.parquet(path)
    spark.read.parquet(path).groupBy("id").count().orderBy("id").collect()
    query = spark.readStream.schema("id long").parquet(path).writeStream.format("parquet")
    query = query.option("checkpointLocation", f"{folder}/state").trigger(availableNow=True)
    query.start(f"{folder}/copy").awaitTermination()
    spark.stop()
java = SparkContext._gateway.proc
java.stdin.close()
raise SystemExit(java.wait())
"""


@cache
def use() -> None:
    """Set the variables by which Spark's scripts give options to Java."""
    from lakelog_lake.errors import NoJava
    from lakelog_spark.sessions import find_java

    with suppress(NoJava):
        home = find_java()
        _set([*_FLAGS, f"-XX:SharedArchiveFile={_archive(home)}"])


def _set(flags: list[str]) -> None:
    os.environ["SPARK_LAUNCHER_OPTS"] = " ".join(QUICK)
    os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_DAEMON_JAVA_OPTS"] = " ".join(flags)


def _archive(home: Path | None) -> Path:
    import pyspark

    place = os.environ.get("JAVA_HOME") if home is None else home
    java = f"{place}/bin/java" if place else "java"
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    jars = Path(pyspark.__file__).parent / "jars"
    state = f"{version!r} {jars} {jars.stat().st_mtime_ns}".encode()
    name = f"spark-classes-{hashlib.sha256(state).hexdigest()[:16]}"
    return maven.once(maven.CACHE / name, _make) / "shared.jsa"


def _make(folder: Path) -> None:
    flags = " ".join([*_FLAGS, f"-XX:ArchiveClassesAtExit={folder / 'shared.jsa'}"])
    maven.run([sys.executable, "-c", _LOADING], environ={**os.environ, "SPARK_SUBMIT_OPTS": flags})
