"""RocketMQ's broker delivers what an embedded store left waiting, and the store what it left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message
from tests.broker.later import java_client, rocketmqs_broker
from tests.replication.masterbroker import SEGMENT
from tests.support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
TOPIC: Final = "Takeover"
LONG_MS: Final = 15_000


def bodies(store: lakelog.Store) -> list[str]:
    """What has come to all queues of the topic."""
    return [
        bytes(message.body).decode()
        for queue in store.queues(TOPIC)
        for message in store.read(TOPIC, queue.queue_id)
    ]


def test_what_waits_comes_from_the_other_and_once(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"segment_size_bytes": SEGMENT}
    begun_ms = time.time_ns() // 1_000_000
    with lakelog.open(tmp_path / "store", mode="exclusive", **sizes) as store:
        store.put(Message(TOPIC, b"soon", queue_id=0, delay_ms=50))
        until(lambda: bodies(store) == ["soon"])
        store.put(Message(TOPIC, b"delay", queue_id=0, delay_ms=LONG_MS))
        store.put(Message(TOPIC, b"time", queue_id=1, deliver_at_ms=begun_ms + LONG_MS))
    with rocketmqs_broker(tmp_path) as broker:
        with java_client(broker.server, TOPIC, tmp_path) as client:
            client.create_topic("plain")
            client.do("consume")
            client.got({"delay", "time"})
            times = {each["body"]: each["stored"] for each in client.of("got")}
            assert min(times["delay"], times["time"]) >= begun_ms + LONG_MS
            client.do(f"timer {LONG_MS} timer")
            client.do("delay 3 level")
        broker.end(killed=False)
    with lakelog.open(tmp_path / "store", mode="exclusive", **sizes) as store:
        until(lambda: {"timer", "level"} <= set(bodies(store)))
        assert sorted(bodies(store)) == ["delay", "level", "plain", "soon", "time", "timer"]
