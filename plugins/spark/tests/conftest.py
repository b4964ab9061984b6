"""What the tests of this folder share; without Java those of Spark skip, but in CI they fail."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakelog_spark
from plugins.lake.tests.conftest import kind, source, store_fixtures, store_of_300, store_path
from plugins.lake.tests.remote.conftest import aws, place, rest
from tests.support import required, sparkjava

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "aws",
    "kind",
    "place",
    "rest",
    "session",
    "source",
    "spark",
    "store_fixtures",
    "store_of_300",
    "store_path",
]

_FIRST_SESSION_SECONDS = 300  # it downloads Iceberg's package
SECRETS = {"spark.sql.catalog.c.uri": "u:hunter2@h", "spark.hadoop.x.secret.key": "hunter2"}
_OF_SMALL_JOBS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # compiling takes longer than such a job
}
# PySpark leaves the sockets by which it collects rows to the garbage collector.
_OF_PYSPARK = (
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.java)
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(_FIRST_SESSION_SECONDS))
            for warning in _OF_PYSPARK:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") is not None:
        sparkjava.use()


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start Spark once."""
    reason = lakelog_spark.missing_java()
    if reason is not None:
        required.missing(reason)
    made = lakelog_spark.session(
        tmp_path_factory.mktemp("warehouse"),
        master="local[2]",
        config={**_OF_SMALL_JOBS, **SECRETS},
    )
    lakelog_spark.register(made)
    yield made
    made.stop()


def warehouse_of(spark: SparkSession) -> Path:
    """Of the session's catalog ``lake``."""
    folder = spark.conf.get("spark.sql.catalog.lake.warehouse")
    assert folder is not None
    return Path(folder.removeprefix("file://"))


@pytest.fixture
def spark(session: SparkSession) -> Iterator[SparkSession]:
    """A session with both formats, and the Iceberg catalog ``lake``."""
    yield session
    gc.collect()  # here, where the sockets are forgiven, and not in some other test
