"""A program that puts, delays, consumes, acknowledges and returns messages until its disk fails.

It prints a JSON line with its time for each step: before each acknowledgement, and after each put,
return and commit.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import lakelog
from lakelog import Message
from lakelog.errors import LakelogError
from lakelog_queues.delays import service

TOPIC: Final = "t"
LATE: Final = "late"
"""The topic of delayed messages."""
QUEUES: Final = 3
ATTEMPTS: Final = 3


def settings_of(flush: str) -> Mapping[str, Any]:
    return {
        "flush": flush,
        "timed": {"flush_interval_ms": 50},
        "segment_size_bytes": 1 << 16,
        "preallocate": False,
        "dispatchers": ["consume-queue"],
    }


def tell(step: str, what: object) -> None:
    sys.stdout.write(json.dumps([time.monotonic(), step, what]) + "\n")
    sys.stdout.flush()


def run(path: str, flush: str, seed: int) -> None:
    chance = random.Random(seed)
    service.SAVE_INTERVAL_MS = 20  # type: ignore[misc]  # many saves of progress before the cut
    store = lakelog.open(path, **settings_of(flush))
    member = store.subscribe(
        "g", TOPIC, start="earliest", commit_interval_ms=20, max_attempts=ATTEMPTS
    )
    consumer = store.consumer("c", TOPIC, start="earliest")
    for number in itertools.count():
        store.put(Message(TOPIC, b"%d" % number, queue_id=number % QUEUES))
        tell("put", number)
        if number % 3 == 0:
            delay_ms = chance.randrange(1, 200)
            store.put(Message(LATE, b"%d" % number, queue_id=0, delay_ms=delay_ms))
            tell("delayed", number)
        if number % 5 == 4:
            for each in member.poll(8):
                body = int(bytes(each.message.body))
                if chance.random() < 0.3:
                    member.nack(each, delay_ms=chance.choice([0, 20]))
                    tell("nack", body)
                else:
                    tell("acking", body)
                    member.ack(each)
        if number % 10 == 9:
            consumer.poll(16)
            consumer.commit()
            tell("consumed", consumer.committed())
        if number % 20 == 19:
            member.commit()
            tell("committed", store.groups()["g"])


if __name__ == "__main__":
    try:
        run(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    except (LakelogError, OSError) as error:
        tell("failed", str(error))
