"""The same messages in a Kafka topic, produced once and read by all contenders.

`python -m` is one producer process, for one partition.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench.content import TAGS, key
from tests.bench.kafka import broker
from tests.bench.lake.filling import once
from tests.bench.lake.messages import POOL, bodies
from tests.bench.model import CannotRunError

PARTITIONS: Final = 4
TOPIC: Final = "bench"


@contextmanager
def running(shared: Path, rows: int) -> Iterator[str]:
    """Run a broker with ``rows`` messages in the topic; yields its address.

    Raises CannotRunError.
    """

    def make(unfinished: Path) -> None:
        unfinished.mkdir()
        with broker.running(unfinished, kept=True) as address:
            create(address, TOPIC)
            produce(address, rows)

    folder = once(shared / f"kafka-{rows}", make)
    with broker.running(folder, kept=True) as address:
        yield address


def create(address: str, topic: str) -> None:
    """Create the topic with a partition for each producer."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic
    except ImportError as missing:
        raise CannotRunError(str(missing)) from missing
    admin = AdminClient({"bootstrap.servers": address})
    try:
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(60)
    except KafkaException as error:
        raise CannotRunError(f"the broker made no topic: {error}") from error


def produce(address: str, rows: int) -> None:
    """Produce ``rows`` messages, with a process for each partition."""
    command = [sys.executable, "-m", __name__, address, str(rows)]
    started = [
        subprocess.Popen([*command, str(partition)], stderr=subprocess.PIPE, text=True)
        for partition in range(PARTITIONS)
    ]
    errors = [each.communicate()[1] for each in started]
    if any(each.returncode for each in started):
        lines = [line for text in errors for line in text.strip().splitlines()]
        raise CannotRunError(f"a producer died: {(lines or ['without a word'])[-1]}")


def fill(address: str, rows: int, partition: int) -> None:
    """Produce every ``PARTITIONS``-th message."""
    producer, pool = _producer(address), bodies()
    for number in range(partition, rows, PARTITIONS):
        _produce(producer, number, partition, pool[number % POOL])
    if producer.flush(600):
        raise RuntimeError("not all was acknowledged within ten minutes")


class Producing:
    """Produces increments of ``rows`` messages, spread over the partitions."""

    def __init__(self, address: str, rows: int) -> None:
        self._producer = _producer(address)
        self._rows = rows
        self._next = 0

    def put(self) -> None:
        """Produce one increment, and wait until all of it is acknowledged."""
        for number in range(self._next, self._next + self._rows):
            _produce(self._producer, number, number % PARTITIONS, bodies()[number % POOL])
        self._next += self._rows
        if self._producer.flush(60):
            raise RuntimeError("not all was acknowledged within a minute")


def _producer(address: str) -> Any:
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": address,
        "acks": "all",
        "compression.type": "none",
        "linger.ms": 5,
        "batch.size": 1 << 20,
        "queue.buffering.max.messages": 20_000,
    }
    return Producer(settings)


def _produce(producer: Any, number: int, partition: int, body: bytes) -> None:
    while True:
        try:
            producer.produce(
                TOPIC,
                body,
                key=key(number).encode(),
                headers=[("TAGS", TAGS.encode())],
                partition=partition,
            )
        except BufferError:
            producer.poll(0.01)
        else:
            return


if __name__ == "__main__":
    fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
