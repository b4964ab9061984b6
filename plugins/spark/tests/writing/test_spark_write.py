"""A real session appends rows to stores."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog_spark.writing.staging import DEAD_DAYS, STAGING_DIR, prune
from plugins.lake.tests.stores import filled, open_small
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 300
_LONGEST_SECONDS = 200
GIVEN = (
    "topic", "queue_id", "body", "tags", "keys", "properties", "unique_key", "born_timestamp_ms",
    "born_host", "flag", "sys_flag", "reconsume_times",
)  # fmt: skip  # a list of names


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spark_write") / "source"
    filled(path, COUNT)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    open_small(tmp_path / "target").close()
    return tmp_path / "target"


def given(path: Path) -> list[tuple[Any, ...]]:
    """What a sender gave, in the order of the log."""
    with lakelog.open(path, mode="read") as store:
        return [tuple(getattr(each, name) for name in GIVEN) for each in store.scan()]


def append(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("lakelog").mode("append").options(**options).save(str(path))


def staged(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "lakelog" / STAGING_DIR).glob("*/*"))


def test_a_store_is_copied_once(spark: SparkSession, source: Path, target: Path) -> None:
    frame = spark.read.format("lakelog").option("max_partition_bytes", "48k").load(str(source))
    assert frame.rdd.getNumPartitions() > 1
    for _ in range(2):
        append(frame, target, ignore_position_columns="true", job_id="copy")
    assert given(target) == given(source)
    with lakelog.open(target, mode="read") as store:
        assert store.flushed_offset == store.max_offset
    assert staged(target) == ["journal.json"]


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, target: Path) -> None:
    """Nor do its neighbours, once their staged rows are old; the error names the row.

    Spark does not wait for a neighbour that it kills: it may finish its file after the abort.
    """
    frame = spark.range(0, 100, 1, 4).selectExpr(
        "'t' topic", "if(id = 60, null, cast(id as string)) body"
    )
    with pytest.raises(PythonException, match="row 10 of partition 2: body is null"):
        append(frame, target)
    assert given(target) == []
    later = time.time() + (DEAD_DAYS + 1) * 24 * 3600

    def is_clean() -> bool:
        prune(RealFileSystem(), target, now=later)
        return staged(target) == []

    until(is_clean)


RETRYING = """
import sys
from pathlib import Path
from pyspark.sql.functions import udf
import lakelog_spark
store, mark = sys.argv[1:]
spark = lakelog_spark.session(master="local[2,3]")
lakelog_spark.register(spark)

def fail_once(number):
    if number == 40 and not Path(mark).exists():
        Path(mark).touch()
        raise RuntimeError("the first attempt")
    return str(number)

rows = spark.range(0, 100, 1, 4).selectExpr("'t' topic", "id")
rows = rows.withColumn("body", udf(fail_once, "string", useArrow=False)(rows.id)).drop("id")
rows.write.format("lakelog").mode("append").save(store)
spark.stop()
"""


@pytest.mark.slow
def test_a_task_that_fails_once_is_tried_again(target: Path, tmp_path: Path) -> None:
    """In a session of its own: a local one retries only where its master says so."""
    command = [sys.executable, "-c", RETRYING, str(target), str(tmp_path / "failed")]
    subprocess.run(command, check=True, timeout=_LONGEST_SECONDS)
    assert (tmp_path / "failed").exists()
    with lakelog.open(target, mode="read") as store:
        assert [int(each.body) for each in store.scan()] == list(range(100))
    assert staged(target) == ["journal.json"]


def test_what_is_refused_before_any_task(spark: SparkSession, target: Path, tmp_path: Path) -> None:
    rows = spark.range(3).selectExpr("'t' topic", "'b' body")
    with pytest.raises(AnalysisException, match=r"tag \(did you mean tags\?\)"):
        append(rows.selectExpr("*", "body as tag"), target)
    with pytest.raises(AnalysisException, match=r"only be appended to: use mode\('append'\)"):
        rows.write.format("lakelog").mode("overwrite").save(str(target))
    closed = {"attach": {"listen": False}}
    with (
        open_small(target, **closed),
        pytest.raises(AnalysisException, match="has this store open and lets nobody in: attach"),
    ):
        append(rows, target)
    with pytest.raises(AnalysisException, match="give option create=true"):
        append(rows, tmp_path / "new")
    settings = tmp_path / "settings.toml"
    settings.write_text('segment_size_bytes = "64KiB"\npreallocate = false\n')
    append(rows, tmp_path / "new", create="true", settings=str(settings))
    assert len(given(tmp_path / "new")) == 3


def test_a_stream_goes_through_a_living_owner_once(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path
) -> None:
    """Started twice from its checkpoint; the last batch is run again."""
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        reader = spark.readStream.format("lakelog").option("max_rows_per_batch", "150")
        given = {"checkpointLocation": str(checkpoint), "ignore_position_columns": "true"}
        writer = reader.load(str(source)).writeStream.format("lakelog").options(**given)
        query = writer.trigger(availableNow=True).start(str(target))
        query.awaitTermination(_LONGEST_SECONDS)

    with open_small(target) as owner:
        run()
        assert owner.flushed_offset >= owner.max_offset
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
        last.unlink()
        (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
        run()
    assert sorted(given(target), key=repr) == sorted(given(source), key=repr)
    assert staged(target) == ["last_batch"]


def test_a_stream_with_wrong_columns_is_refused(
    spark: SparkSession, target: Path, tmp_path: Path
) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("'t' topic", "'b' wrong")
    writer = stream.writeStream.format("lakelog").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match="unknown columns: wrong"):
        writer.start(str(target)).awaitTermination(_LONGEST_SECONDS)
