"""A dispatcher whose tasks Spark runs, in a process of its own: ``program_spark JSON``.

The JSON has ``master``, ``store``, ``kind`` and ``table``; ``events``, a folder for Spark's events;
and ``dynamic``, whether executors come and go. Tasks are speculative. ``iceberg`` goes through the
catalog of the session, so that its commits are made in the JVM. Prints ``ready``, then the phases
of each pass, and ends, if nobody kills it, when its standard input does.
"""

from __future__ import annotations

import json
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakelog_spark
from lakelog_lake.errors import TemporaryError
from lakelog_lake.landing.dispatcher import LandingDispatcher
from lakelog_lake.landing.targets import Target, Targets
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_spark.catalog import spark_iceberg_sink
from lakelog_spark.engine import spark as by_spark
from plugins.lake.tests.landing.passes import sink_for
from plugins.lake.tests.landing.tables import TABLE
from plugins.spark.tests.clusters import OF_A_DRIVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}
"""A task runs a second time where half of its job is done, and it takes longer than that."""
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.executor.cores": "1",
}
"""Executors come for tasks, and go when they have had none for a second."""
BOUNDS = TaskLimits(pass_bytes=96 << 10, task_bytes=24 << 10, file_bytes=24 << 10)


def main() -> None:
    given = json.loads(sys.argv[1])
    warehouse = given["table"] if given["kind"] == "iceberg" else None
    config = OF_A_DRIVER | SPECULATIVE | {"spark.eventLog.dir": f"file:{given['events']}"}
    if given["dynamic"]:
        config |= DYNAMIC
    spark = lakelog_spark.session(warehouse, master=given["master"], config=config)
    sink = _sink(spark, given)
    sink.prepare()
    source = LandingSource(Path(given["store"]), "S")
    lander = LandingDispatcher(source, Targets([Target(sink)]), by_spark(spark), BOUNDS, say)
    say("ready")
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            if lander.one_pass() is None:
                time.sleep(0.05)
        except TemporaryError as error:
            say(f"trouble: {error}")
    lander.close()
    with suppress(Exception):  # its JVM may have ended
        spark.stop()


def _sink(spark: SparkSession, given: dict[str, Any]) -> Any:
    if given["kind"] == "iceberg":
        return spark_iceberg_sink(spark, f"lake.{TABLE}")
    return sink_for(f"{given['kind']}:{given['table']}")


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
