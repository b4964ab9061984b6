"""Appends rows where one task fails at its first attempt: ``retrying.py STORE MARK``."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

import lakelog_spark


def main(store: str, mark: str) -> None:
    """100 rows in 4 partitions; the mark says that a task has failed."""
    spark = lakelog_spark.session(master="local[2,3]")
    lakelog_spark.register(spark)

    def fail_once(number: int) -> str:
        if number == 40 and not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("the first attempt")
        return str(number)

    rows = spark.range(0, 100, 1, 4).selectExpr("'t' topic", "id")
    bodies = rows.withColumn("body", udf(fail_once, StringType(), useArrow=False)(rows.id)).drop(
        "id"
    )
    bodies.write.format("lakelog").mode("append").save(store)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
