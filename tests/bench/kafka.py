"""A single Kafka broker on this machine, which syncs after each appended batch, and its producers.

``python -m tests.bench.kafka ADDRESS PARTITION SECONDS BODY_BYTES BATCH_BYTES`` is one of several
producers that are measured: it prints that it is ready, waits for a line, and prints its figures as
JSON. ``python -m tests.bench.kafka ADDRESS PARTITION ROWS`` produces the messages of the lake.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.bench import content, running
from tests.bench.lake.messages import POOL, bodies, once
from tests.bench.model import CannotRunError, Sample
from tests.replication.masterbroker import free_ports
from tests.support import maven

SETTINGS: Final = (
    "one broker (KRaft) of Kafka 4.1.0 on localhost, acks=all, log.flush.interval.messages=1, heap "
    "1 GiB; a partition for each of the producer processes (confluent-kafka)"
)
TOPIC: Final = "bench"
PARTITIONS: Final = 4
_POM: Final = Path(__file__).with_name("kafka_pom.xml")
_SECONDS: Final = 60
_LATENCY_OF_EVERY: Final = 16
_HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


# --- the broker --------------------------------------------------------------------------------


@contextmanager
def broker(directory: Path, *, kept: bool = False) -> Iterator[str]:
    """Start broker and controller in one process; stop it at the end; yields its address.

    :param directory: an empty one, or that of a stopped broker
    :param kept: whether the broker is stopped cleanly, so that it can be started again
    """
    if shutil.which("java") is None or shutil.which("mvn") is None:
        raise CannotRunError("the broker needs a JDK (17 or later) and Maven")
    try:
        jars = maven.jars(_POM)
    except RuntimeError as error:
        raise CannotRunError(f"the broker's jars: {str(error).splitlines()[-1]}") from error
    java = ["java", *_HEAP, "-cp", os.fspath(jars / "*")]
    ports = free_ports(2)
    settings, log = directory / "server.properties", directory / "broker.log"
    settings.write_text(_properties(directory, *ports), encoding="ascii")
    if not (directory / "logs").exists():
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(settings)]
        running.output([*java, *tool])
    with log.open("wb") as out:
        command = [*java, "kafka.Kafka", str(settings)]
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=directory)
        try:
            running.await_port(ports[0], lambda: process.poll() is None)
            yield f"127.0.0.1:{ports[0]}"
        finally:
            if kept:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_SECONDS)
            process.kill()
            process.wait()


def _properties(directory: Path, port: int, controller_port: int) -> str:
    pairs = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": directory / "logs",
        "log.flush.interval.messages": 1,
        "offsets.topic.replication.factor": 1,
        "auto.create.topics.enable": "false",
        "message.max.bytes": 8 << 20,
        "socket.request.max.bytes": 256 << 20,
    }
    return "".join(f"{name}={value}\n" for name, value in pairs.items())


def create_topic(address: str, partitions: int = PARTITIONS) -> None:
    """Create the topic with a partition for each producer; raises CannotRunError."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic
    except ImportError as missing:
        raise CannotRunError(str(missing)) from missing
    admin = AdminClient({"bootstrap.servers": address})
    try:
        for future in admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values():
            future.result(_SECONDS)
    except KafkaException as error:
        raise CannotRunError(f"the broker made no topic: {error}") from error


@contextmanager
def filled(shared: Path, rows: int) -> Iterator[str]:
    """Run a broker with ``rows`` messages of the lake in the topic; yields its address."""

    def make(unfinished: Path) -> None:
        unfinished.mkdir()
        with broker(unfinished, kept=True) as address, ExitStack() as stack:
            create_topic(address)
            commands = [running.python(__name__, address, at, rows) for at in range(PARTITIONS)]
            started = [stack.enter_context(subprocess.Popen(each)) for each in commands]
            if any(each.wait() for each in started):
                raise CannotRunError("a producer died")

    with broker(once(shared / f"kafka-{rows}", make), kept=True) as address:
        yield address


# --- producers ---------------------------------------------------------------------------------


class Producing:
    """A producer of the topic; each message has key and tag like those of all stores."""

    def __init__(self, address: str, batch_bytes: int = 1 << 20) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "compression.type": "none",
                "linger.ms": 5,
                "batch.size": batch_bytes,
                "batch.num.messages": 1_000_000,
                "message.max.bytes": 2 * batch_bytes,
                "queue.buffering.max.messages": 20_000,
                "queue.buffering.max.kbytes": 1 << 20,
            }
        )
        self._producer.list_topics(timeout=30)
        self._next = 0

    def send(self, number: int, partition: int, body: bytes, delivered: Any = None) -> None:
        """Send one message; it is acknowledged later."""
        given: dict[str, Any] = {"partition": partition, "on_delivery": delivered}
        headers: list[tuple[str, str | bytes | None]] = [("TAGS", content.TAGS.encode())]
        given |= {"key": content.key(number).encode(), "headers": headers}
        while True:
            try:
                self._producer.produce(TOPIC, body, **given)
            except BufferError:
                self._producer.poll(0.005)
            else:
                break
        if not number % 256:
            self._producer.poll(0)

    def fill(self, numbers: range) -> None:
        """Send messages of the lake, each to its partition, until all are acknowledged."""
        for number in numbers:
            self.send(number, number % PARTITIONS, bodies()[number % POOL])
        self.flush()

    def put(self, rows: int) -> None:
        """Send the next ``rows`` messages of the lake, until all are acknowledged."""
        self._next += rows
        self.fill(range(self._next - rows, self._next))

    def flush(self) -> None:
        """Wait until all is acknowledged."""
        if self._producer.flush(10 * _SECONDS):
            raise RuntimeError("not all was acknowledged in time")

    def measure(self, partition: int, body: bytes, seconds: float) -> dict[str, Any]:
        """Send for ``seconds``, and return figures; latencies are of some messages."""
        took_us: list[float] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            took_us.append(message.latency() * 1e6)

        start, number = time.perf_counter(), 0
        while time.perf_counter() < start + seconds:
            self.send(number, partition, body, None if number % _LATENCY_OF_EVERY else delivered)
            number += 1
        self.flush()
        return {"messages": number, "seconds": time.perf_counter() - start, "took_us": took_us}


def measured(
    processes: int, seconds: float, body_bytes: int, batch_bytes: int, directory: Path
) -> Sample:
    """Return the acknowledged messages per second of all producer processes together."""
    with broker(directory) as address:
        create_topic(address, processes)
        load = seconds, body_bytes, batch_bytes
        commands = [running.python(__name__, address, at, *load) for at in range(processes)]
        with running.started(commands) as producers:
            running.go(producers)
            rows = [json.loads(running.line_of(each)) for each in producers]
    took = sorted(one for row in rows for one in row["took_us"])
    rows_s = sum(row["messages"] for row in rows) / max(row["seconds"] for row in rows)
    return {
        "rows_s": rows_s,
        "mb_s": rows_s * body_bytes / 1e6,
        "p50_us": took[len(took) // 2],
        "p99_us": took[len(took) * 99 // 100],
        "max_us": took[-1],
    }


def main(address: str, partition: str, *load: str) -> None:
    """Fill a partition, or warm up and measure."""
    if len(load) == 1:
        Producing(address).fill(range(int(partition), int(load[0]), PARTITIONS))
        return
    seconds, body_bytes, batch_bytes = float(load[0]), int(load[1]), int(load[2])
    producing, body = Producing(address, batch_bytes), content.body(body_bytes)
    print(running.READY, flush=True)
    sys.stdin.readline()
    producing.measure(int(partition), body, seconds / 2)
    print(json.dumps(producing.measure(int(partition), body, seconds)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
