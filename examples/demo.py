"""The main job as far as it exists today: messages in, a lakehouse table out.

    python examples/demo.py [EVENTS]

One process owns the store and appends events. Spark reads the log beside it, one task per segment,
and writes an Iceberg table. At the end SQL over the table must count what the log holds. Without
Java the log is counted by itself.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lakelog
import lakelog_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS, BATCH = 200_000, 1_000
TOPICS = {"page_views": 70, "cart_changes": 20, "orders": 8, "payments": 2}
COUNTRIES = ("de", "fr", "it", "nl", "pl")
TABLE = "lake.shop.events"
REPORT = f"""
    SELECT tags AS country, count(*) AS orders,
           round(sum(get_json_object(string(body), '$.amount'))) AS amount
    FROM {TABLE} WHERE topic = 'orders' GROUP BY country ORDER BY country
"""


def events(count: int) -> Iterator[lakelog.Message]:
    """Events of a web shop; the same ones each time."""
    chance = random.Random(7)
    names, weights = list(TOPICS), list(TOPICS.values())
    for number, topic in enumerate(chance.choices(names, weights, k=count)):
        user = chance.randrange(50_000)
        amount = round(chance.expovariate(1 / 40), 2)
        event = {"event": number, "user": user, "amount": amount, "page": f"/item/{user % 977}"}
        yield lakelog.Message(
            topic,
            json.dumps(event).encode(),
            tags=chance.choice(COUNTRIES),
            keys=f"user-{user}",
            queue_id=user % 4,
        )


def produce(store: lakelog.Store, count: int) -> None:
    """Append the events in batches."""
    source = events(count)
    started = time.perf_counter()
    for start in range(0, count, BATCH):
        store.put_batch([next(source) for _ in range(min(BATCH, count - start))])
    seconds = time.perf_counter() - started
    size, segments = store.max_offset / 2**20, len(list((store.path / "commitlog").iterdir()))
    rate = f"{count / seconds:,.0f} per second"
    print(f"put    {count:,} events in {seconds:.1f} s ({rate}), {size:.0f} MiB", flush=True)
    print(f"log    {segments} segments of 16 MiB, the last one ahead of need", flush=True)


def in_log(path: Path) -> Counter[str]:
    """How many messages of each topic the log holds."""
    with lakelog.open(path, mode="read") as store:
        return Counter(message.topic for message in store.scan())


def in_table(spark: SparkSession, path: Path) -> Counter[str]:
    """Write the table, and count in it."""
    lakelog_spark.register(spark)
    messages = spark.read.format("lakelog").load(str(path))
    started = time.perf_counter()
    messages.writeTo(TABLE).using("iceberg").create()
    seconds = time.perf_counter() - started
    tasks = messages.rdd.getNumPartitions()
    print(f"spark  wrote the Iceberg table {TABLE} with {tasks} tasks in {seconds:.1f} s")
    counts = spark.sql(f"SELECT topic, count(*) FROM {TABLE} GROUP BY topic").collect()
    spark.sql(REPORT).show()
    return Counter(dict(map(tuple, counts)))


def start_spark(warehouse: Path) -> SparkSession:
    """A session on this machine."""
    print("spark  starts, about 10 s; the first time it downloads Iceberg (50 MB)", flush=True)
    started = time.perf_counter()
    spark = lakelog_spark.session(warehouse)
    print(f"spark  {spark.version} is up after {time.perf_counter() - started:.1f} s", flush=True)
    return spark


def compare(log: Counter[str], table: Counter[str]) -> bool:
    """Print both; whether they agree."""
    for topic in TOPICS:
        mark = "=" if log[topic] == table[topic] else "IS NOT"
        print(f"       {topic:14} log {log[topic]:>8,} {mark} table {table[topic]:>8,}")
    print("table: iceberg")
    print(f"rows: {table.total()}")
    return log == table


def lake(path: Path, warehouse: Path) -> bool:
    """Bring the log into a table; whether the table holds exactly what the log holds."""
    spark = start_spark(warehouse)
    try:
        table = in_table(spark, path)
    finally:
        spark.stop()
    return compare(in_log(path), table)


def main(folder: Path, count: int) -> int:
    """Run it; 0 if all that was put is in the log, and in the table."""
    path, missing, right = folder / "store", lakelog_spark.missing_java(), True
    with lakelog.open(path, segment_size_bytes="16MiB", flush="none") as store:
        produce(store, count)
    if missing is None:  # closed: Spark takes what is durable, and beside an open store no more
        right = lake(path, folder / "warehouse")
    found = in_log(path).total()
    print(f"log    {found:,} messages read back", flush=True)
    if missing is not None:
        print(f"No table this time. {missing}")
    return int(not right or found != count)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        wanted = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
        sys.exit(main(Path(temporary), wanted))
