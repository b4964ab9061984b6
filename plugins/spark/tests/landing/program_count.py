"""Counts the rows of a table by Spark, in a process of its own: ``program_count JSON``.

The JSON has ``delta`` or ``parquet``, a folder, or ``table``, an Iceberg table, with the folder
``warehouse`` of its catalog or the ``config`` of another one. Prints a list: how many rows, and of
how many records.
"""

from __future__ import annotations

import json
import sys

import lakelog_spark


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = lakelog_spark.session(
        given.get("warehouse"),
        master="local[2]",
        iceberg="table" in given,
        delta="delta" in given,
        config={"spark.sql.shuffle.partitions": "2", **given.get("config", {})},
    )
    if "table" in given:
        rows = spark.table(given["table"])
    else:
        (kind,) = given.keys() & {"delta", "parquet"}
        rows = spark.read.format(kind).load(given[kind])
    places = rows.select("physical_offset")
    sys.stdout.write(f"{json.dumps([places.count(), places.distinct().count()])}\n")
    spark.stop()


if __name__ == "__main__":
    main()
