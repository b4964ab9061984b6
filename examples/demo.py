"""Messages in, a lakehouse table out, exactly once.

    python examples/demo.py [EVENTS]

This process owns a store and appends events. `lakelog dispatch --engine spark`, in a separate
process, lands them with Spark in an Iceberg table meanwhile. The dispatcher is killed once, and
another one continues. At the end SQL over the table counts rows, duplicates and gaps.
Without Java, plain processes land the events, and pyiceberg counts.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

import lakelog
import lakelog_spark

EVENTS, BATCH = 200_000, 1_000
SECONDS: Final = 12.0
"""Duration of the appends; several passes land meanwhile."""
TOPICS = {"page_views": 70, "cart_changes": 20, "orders": 8, "payments": 2}
COUNTRIES = ("de", "fr", "it", "nl", "pl")
TABLE = "shop.events"
REPORT = f"""
    SELECT tags AS country, count(*) AS orders,
           round(sum(get_json_object(string(body), '$.amount'))) AS amount
    FROM lake.{TABLE} WHERE topic = 'orders' GROUP BY country ORDER BY country
"""
QUEUES = f"""
    SELECT topic, queue_id, count(*) AS found, count(DISTINCT queue_offset) AS different,
           max(queue_offset) + 1 AS expected
    FROM lake.{TABLE} GROUP BY topic, queue_id
"""
SUMS = f"""
    SELECT topic, sum(found), sum(found - different), sum(expected - different)
    FROM ({QUEUES}) GROUP BY topic
"""


def events(count: int) -> Iterator[lakelog.Message]:
    """Yield events of a web shop, the same in each run."""
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


def produce(store: lakelog.Store, count: int) -> Iterator[int]:
    """Append the events in batches, spread over some seconds; yield the number so far."""
    source, started, busy = events(count), time.perf_counter(), 0.0
    for start in range(0, count, BATCH):
        batch = [next(source) for _ in range(min(BATCH, count - start))]
        began = time.perf_counter()
        store.put_batch(batch)
        busy += time.perf_counter() - began
        yield start + len(batch)
        time.sleep(max(0.0, started + SECONDS * start / EVENTS - time.perf_counter()))
    size, rate = store.max_offset / 2**20, count / busy
    say("put", f"{count:,} events, {size:.0f} MiB of log, {rate:,.0f} per second while putting")


@attrs.define
class Dispatcher:
    """`lakelog dispatch` as a process; its output appears with that of the demo."""

    store: Path
    warehouse: Path
    engine: str

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Land durable messages in the table, and continue."""
        command = ("-m", "lakelog", "dispatch", self.store, "--to", f"iceberg:{self.warehouse}")
        where = ("--table", TABLE, "--engine", self.engine)
        return subprocess.Popen([sys.executable, *command, *where, *options])

    def wait_until_it_lands(self, running: subprocess.Popen[bytes]) -> None:
        """Wait until part of the log is in the table; Spark takes some seconds to start."""
        while not any(self.warehouse.glob("**/*.parquet")):
            if running.poll() is not None:
                raise SystemExit("the dispatcher failed")
            time.sleep(0.1)


def say(who: str, what: str) -> None:
    """Print one line."""
    print(f"{who:9}{what}", flush=True)


def fill(path: Path, dispatcher: Dispatcher, count: int) -> None:
    """Append all events while a dispatcher lands them; kill it once, and start another one."""
    running, killed = None, False
    with lakelog.open(path, segment_size_bytes="16MiB", flush="timed") as store:
        for done in produce(store, count):
            running = running or dispatcher.start()
            if not killed and done > count // 3:
                dispatcher.wait_until_it_lands(running)
                running.kill()
                running.wait()
                killed = True
                say("kill", f"the dispatcher, by SIGKILL, after {done:,} events; another continues")
                if dispatcher.engine == "spark":
                    say("", "(its JVM may still print errors about the lost process; ignore them)")
                running = dispatcher.start()
    if running is not None:
        running.terminate()  # the dispatcher completes its pass
        running.wait()
    if dispatcher.start("--once").wait():  # lands the rest
        raise SystemExit("the dispatcher failed")


@attrs.frozen
class Counts:
    """The results of a query of the table, by topic."""

    rows: Counter[str]
    duplicates: int
    gaps: int


def ask_spark(warehouse: Path) -> Counts:
    """Count by SQL, and print a report."""
    say("spark", "starts, about 10 s; the first time it downloads Iceberg (50 MB)")
    spark = lakelog_spark.session(warehouse)
    try:
        found = spark.sql(SUMS).collect()
        spark.sql(REPORT).show()
    finally:
        spark.stop()
    rows = Counter({topic: int(count) for topic, count, _, _ in found})
    return Counts(rows, sum(int(each[2]) for each in found), sum(int(each[3]) for each in found))


def ask_arrow(warehouse: Path) -> Counts:
    """Count by pyiceberg and Arrow."""
    from lakelog_lake.sinks.iceberg import sqlite_catalog

    columns = ("topic", "queue_id", "queue_offset")
    table = sqlite_catalog(warehouse).load_table(TABLE).scan(selected_fields=columns).to_arrow()
    offsets = [("queue_offset", each) for each in ("count", "count_distinct", "max")]
    rows: Counter[str] = Counter()
    duplicates = gaps = 0
    for queue in table.group_by(["topic", "queue_id"]).aggregate(offsets).to_pylist():
        different = queue["queue_offset_count_distinct"]
        rows[queue["topic"]] += queue["queue_offset_count"]
        duplicates += queue["queue_offset_count"] - different
        gaps += queue["queue_offset_max"] + 1 - different
    return Counts(rows, duplicates, gaps)


def in_log(path: Path) -> Counter[str]:
    """Return the number of messages of each topic in the log."""
    found: Counter[str] = Counter()
    with lakelog.open(path, mode="read") as store:
        for queue in store.queues():
            found[queue.topic] += queue.max_offset - queue.min_offset
    return found


def compare(log: Counter[str], table: Counts) -> bool:
    """Print both; return whether the table has exactly the messages of the log."""
    for topic in TOPICS:
        mark = "=" if log[topic] == table.rows[topic] else "IS NOT"
        say("", f"{topic:14} log {log[topic]:>8,} {mark} table {table.rows[topic]:>8,}")
    print("table: iceberg")
    print(f"rows: {table.rows.total()}")
    print(f"duplicates: {table.duplicates}")
    print(f"gaps: {table.gaps}")
    return log == table.rows and not table.duplicates and not table.gaps


def main(folder: Path, count: int) -> int:
    """Run the demo; return 0 if each message is in the table exactly once."""
    missing = lakelog_spark.missing_java()
    engine = "processes" if missing else "spark"
    say(engine, missing or f"lands them: lakelog dispatch --engine {engine}")
    dispatcher = Dispatcher(folder / "store", folder / "warehouse", engine)
    fill(dispatcher.store, dispatcher, count)
    found = (ask_arrow if missing else ask_spark)(dispatcher.warehouse)
    return int(not compare(in_log(dispatcher.store), found) or found.rows.total() != count)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        wanted = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
        sys.exit(main(Path(temporary), wanted))
