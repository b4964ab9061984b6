"""The contender Kafka: a broker, and producer processes that start at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench.kafka import broker
from tests.bench.model import CannotRunError, Sample


def run(
    processes: int, seconds: float, body_bytes: int, batch_bytes: int, directory: Path
) -> Sample:
    """Return the acknowledged messages per second of all processes together."""
    try:
        from tests.bench.kafka.producer import TOPIC
    except ImportError as missing:
        raise CannotRunError(str(missing)) from missing
    with broker.running(directory) as address:
        _create_topic(address, TOPIC, processes)
        rows = _produce(processes, [address], [str(seconds), str(body_bytes), str(batch_bytes)])
    took = sorted(one for row in rows for one in row["took_us"])
    rows_s = sum(row["messages"] for row in rows) / max(row["seconds"] for row in rows)
    return {
        "rows_s": rows_s,
        "mb_s": rows_s * body_bytes / 1e6,
        "p50_us": took[len(took) // 2],
        "p99_us": took[len(took) * 99 // 100],
        "max_us": took[-1],
    }


def _create_topic(address: str, topic: str, partitions: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    try:
        for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(60)
    except KafkaException as error:
        raise CannotRunError(f"the broker made no topic: {error}") from error


def _produce(processes: int, before: list[str], behind: list[str]) -> list[dict[str, Any]]:
    """Start the processes, wait until all are connected, then let them produce."""
    command = [sys.executable, "-m", "tests.bench.kafka.producer"]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, *before, str(number), *behind],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(processes)
        ]
        stack.callback(_kill, started)
        if any(_line(one) != "ready" for one in started):
            raise CannotRunError("a producer did not reach the broker")
        for one in started:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        lines = [_line(one) for one in started]
    if not all(lines):
        raise CannotRunError("a producer died")
    return [json.loads(line) for line in lines]


def _kill(processes: list[subprocess.Popen[str]]) -> None:
    for one in processes:
        if one.poll() is None:
            one.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
