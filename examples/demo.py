"""The main job as far as it exists today: events in, read back from another process meanwhile.

    python examples/demo.py [EVENTS]

One process owns the store and appends events in batches. Another one follows the log by reading the
files, without a lock and without asking the owner. At the end both counts must agree.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import lakelog
from lakelog.codec import RecordBatch
from lakelog.pieces import Damage

EVENTS, BATCH = 200_000, 1_000
TOPICS = {"page_views": 70, "cart_changes": 20, "orders": 8, "payments": 2}
COUNTRIES = ("de", "fr", "it", "nl", "pl")


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


def follow(path: Path, count: int, answer: Connection) -> None:
    """Count messages by topic while they come, from the files alone."""
    topics: Counter[str] = Counter()
    place, passes = 0, 0
    with lakelog.open(path, mode="read") as store:
        while topics.total() < count:
            before = place
            for piece in store.scan_pieces(place):
                if isinstance(piece, RecordBatch):
                    topics.update(piece.topics)
                    place = piece.end_offset
                elif isinstance(piece, Damage):
                    break  # seen while it was written: look again
            passes += place > before
            time.sleep(0.02)
    answer.send((topics, place, passes))


def produce(store: lakelog.Store, count: int) -> Counter[str]:
    """Append the events in batches; how many went to each topic."""
    source, topics = events(count), Counter[str]()
    for start in range(0, count, BATCH):
        batch = [next(source) for _ in range(min(BATCH, count - start))]
        for result in store.put_batch(batch):
            topics[result.topic] += 1
    return topics


def main(path: Path, count: int) -> int:
    """Run both; 0 if the log holds exactly what was put."""
    processes = multiprocessing.get_context("spawn")
    answer, sender = processes.Pipe(duplex=False)
    with lakelog.open(path, segment_size_bytes="32MiB", flush="none") as store:
        reader = processes.Process(target=follow, args=(path, count, sender), daemon=True)
        reader.start()
        started = time.perf_counter()
        put = produce(store, count)
        seconds = time.perf_counter() - started
        if not answer.poll(60):
            sys.exit("the reader did not come to the end")
        read, end, passes = answer.recv()
        reader.join()
    segments = sorted((path / "commitlog").iterdir())
    rate, size = count / seconds, end / 2**20
    print(
        f"put   {put.total():,} events in {seconds:.1f} s ({rate:,.0f} per second), {size:.0f} MiB"
    )
    print(f"read  {read.total():,} in another process, in {passes} passes over new records")
    print(f"files {len(segments)} segments of 32 MiB")
    for topic in TOPICS:
        mark = "=" if put[topic] == read[topic] else "IS NOT"
        print(f"      {topic:14} put {put[topic]:>8,} {mark} read {read[topic]:>8,}")
    return int(put != read)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        wanted = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
        sys.exit(main(Path(temporary) / "store", wanted))
