"""A session on this machine, quiet and small, with Iceberg's packages where they are wanted."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from lakelog_spark.errors import NoJava
from lakelog_spark.package import iceberg_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Config: TypeAlias = "dict[str, bool | float | int | str | None]"


def missing_java() -> str | None:
    """Say what this machine lacks to run Spark, and how to get it; ``None`` if it has all."""
    home = os.environ.get("JAVA_HOME")
    if (home and Path(home, "bin", "java").exists()) or shutil.which("java"):
        return None
    return (
        "Spark needs Java 17 and none is here (java is not on the PATH, JAVA_HOME leads to none): "
        "apt-get install openjdk-17-jre-headless (Debian, Ubuntu)"
    )


def session(
    warehouse: str | os.PathLike[str] | None = None,
    *,
    master: str = "local[*]",
    driver_memory: str = "1g",
) -> SparkSession:
    """Start Spark in this process.

    :param warehouse: a folder for Iceberg tables, which get the names ``lake.SCHEMA.TABLE``; the
        first such session on a machine downloads Iceberg's package, about 50 MB
    :param driver_memory: the Java heap, as Spark writes it

    Raises :class:`~lakelog_spark.errors.NoJava`. The Python that runs this runs the workers too:
    ``PYSPARK_PYTHON`` is set.
    """
    from pyspark.sql import SparkSession

    if (missing := missing_java()) is not None:
        raise NoJava(missing)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.appName("lakelog").master(master).config(map=_local(driver_memory))
    )
    if warehouse is None:
        return builder.getOrCreate()
    with iceberg_package() as package:
        return builder.config(map={**package, **_catalog(Path(warehouse))}).getOrCreate()


def _local(driver_memory: str) -> Config:
    quiet = files("lakelog_spark") / "log4j2.properties"
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _catalog(warehouse: Path) -> Config:
    return {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse.absolute().as_uri(),
        "spark.sql.warehouse.dir": warehouse.absolute().as_uri(),
    }
