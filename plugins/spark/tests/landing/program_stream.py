"""A streaming query that lands a store, in a process of its own: ``program_stream JSON``.

The JSON has ``store``, ``to``, ``checkpoint`` and ``hold``. With ``hold`` it follows the store,
lands it in small passes, prints each phase of them, and after each batch ``landed``, and waits then
for a line on its standard input before Spark may note the batch in the checkpoint. Without it, it
lands all that is there, in large passes, and ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakelog_spark
from lakelog_lake.tasks.task import TaskLimits
from plugins.spark.tests.clusters import OF_A_DRIVER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = lakelog_spark.session(master="local[2]", config=OF_A_DRIVER)
    lakelog_spark.register(spark)
    start(spark, given).awaitTermination()
    spark.stop()
    say(f"done {Path(given['checkpoint']).name}")


def start(spark: SparkSession, given: Mapping[str, Any]) -> StreamingQuery:
    lander = lakelog_spark.lander(given["store"], to=given["to"], store_id="S")
    if given["hold"]:
        lander.bounds = TaskLimits(pass_bytes=1 << 20, task_bytes=256 << 10)
    lander.on_phase = say

    def held(frame: DataFrame, batch: int) -> None:
        lander(frame, batch)
        say("landed")
        sys.stdin.readline()

    stream = spark.readStream.format("lakelog").option("store_id", "S").load(given["store"])
    writer = stream.writeStream.option("checkpointLocation", given["checkpoint"])
    if given["hold"]:
        return writer.foreachBatch(held).trigger(processingTime="100 milliseconds").start()
    return writer.foreachBatch(lander).trigger(availableNow=True).start()


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
