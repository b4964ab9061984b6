"""One producer process: sends to one partition for some time, and counts acknowledged messages.

Starts after a line on standard input, so that all start together, and prints its figures as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Producer

from tests.bench import content

TOPIC: Final = "bench"
_QUEUED_MESSAGES: Final = 20_000
_LATENCY_OF_EVERY: Final = 16


def main(address: str, partition: str, seconds: str, body_bytes: str, batch_bytes: str) -> None:
    """Warm up, then measure."""
    producer = Producer(_settings(address, int(batch_bytes)))
    producer.list_topics(timeout=30)
    produce = _produce(producer, int(partition), content.body(int(body_bytes)))
    print("ready", flush=True)
    sys.stdin.readline()
    _run(producer, produce, float(seconds) / 2)
    print(json.dumps(_run(producer, produce, float(seconds))), flush=True)


def _settings(address: str, batch_bytes: int) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "acks": "all",
        "compression.type": "none",
        "linger.ms": 5,
        "batch.size": batch_bytes,
        "batch.num.messages": 1_000_000,
        "message.max.bytes": 2 * batch_bytes,
        "queue.buffering.max.messages": _QUEUED_MESSAGES,
        "queue.buffering.max.kbytes": 1 << 20,
    }


def _produce(producer: Producer, partition: int, body: bytes) -> Callable[[int, Any], None]:
    """Return a function that sends one message, with key and tag like all stores of the bench."""
    headers: list[tuple[str, str | bytes | None]] = [("TAGS", content.TAGS.encode())]

    def produce(number: int, delivered: Any) -> None:
        producer.produce(
            TOPIC,
            body,
            key=content.key(number).encode(),
            headers=headers,
            partition=partition,
            on_delivery=delivered,
        )

    return produce


def _run(producer: Producer, produce: Callable[[int, Any], None], seconds: float) -> dict[str, Any]:
    took_ms: list[float] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        took_ms.append(message.latency() * 1e3)

    start = time.perf_counter()
    number = 0
    while time.perf_counter() < start + seconds:
        try:
            produce(number, None if number % _LATENCY_OF_EVERY else delivered)
            number += 1
        except BufferError:
            producer.poll(0.005)
        else:
            if not number % 256:
                producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("not all was acknowledged within a minute")
    return {
        "messages": number,
        "seconds": time.perf_counter() - start,
        "took_us": [one * 1e3 for one in took_ms],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
