"""Reads a store on a cluster; says how many bytes came from the disk for whom.

Its only argument is JSON: ``master``, ``workers`` (their process ids), ``store``, ``warm`` (another
one, to warm up with), ``small`` (a topic). What it prints has, for each read, rows and the bytes of
the driver's and of the workers' processes: ``read_bytes`` of ``/proc/PID/io``, with a page cache
that holds nothing of the store. Linux adds what a process that has ended had read to the one that
waited for it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

import lakelog_spark
from plugins.spark.tests.cluster_driver import CONFIG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main() -> None:
    given = json.loads(sys.argv[1])
    store, workers = Path(given["store"]), given["workers"]
    spark = lakelog_spark.session(master=given["master"], config=CONFIG)
    lakelog_spark.register(spark)

    def frame(where: str | None = None) -> DataFrame:
        return lakelog_spark.read(spark, store, where, max_partition_bytes="32m")

    small = frame(f"topic = '{given['small']}'")
    everything(spark.read.format("lakelog").load(given["warm"]))  # all processes are there then

    def measured(run: Callable[[], int]) -> dict[str, int]:
        forget(store)
        before = bytes_read([os.getpid()]), bytes_read(workers)
        rows = run()
        after = bytes_read([os.getpid()]), bytes_read(workers)
        return {"rows": rows, "driver": after[0] - before[0], "workers": after[1] - before[1]}

    said = {
        "small": measured(lambda: everything(small)),
        "all": measured(lambda: everything(frame())),
    }
    spark.stop()
    sys.stdout.write(json.dumps(said) + "\n")


def everything(frame: DataFrame) -> int:
    """Count rows, with all their columns read."""
    from pyspark.sql import functions

    columns = functions.count(functions.hash("body", "physical_offset"))
    return int(frame.agg(columns).collect()[0][0])


def forget(store: Path) -> None:
    """Take all files out of the page cache."""
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read(pids: Iterable[int]) -> int:
    """From disks, by these processes, and all below them."""
    processes = [each for pid in pids for each in _tree(psutil.Process(pid))]
    return sum(int(each.io_counters().read_bytes) for each in processes)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


if __name__ == "__main__":
    main()
