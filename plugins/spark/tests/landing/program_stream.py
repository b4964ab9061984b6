"""A streaming query that lands a store, in a process of its own: ``program_stream JSON``.

The JSON has ``store``, ``to``, ``checkpoint`` and ``hold``. With ``hold`` it follows the store,
lands it in small passes, prints each phase of them, and after each batch ``landed``, and waits then
for a line on its standard input before Spark may note the batch in the checkpoint. Without it, it
lands all that is there, in large passes, and ends.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import lakelog_spark
from lakelog_lake.tasks.ranges import TaskLimits
from plugins.spark.tests.clusters import OF_A_DRIVER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = lakelog_spark.session(master="local[2]", config=OF_A_DRIVER)
    lakelog_spark.register(spark)
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
        query = writer.foreachBatch(held).trigger(processingTime="100 milliseconds").start()
    else:
        query = writer.foreachBatch(lander).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()
    say(f"done {Path(given['checkpoint']).name}")


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
