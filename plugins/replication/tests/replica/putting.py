"""A master that puts until it is killed; :mod:`tests.support.forked` starts it."""

from __future__ import annotations

import sys
import time
from typing import Any

import lakelog
from plugins.replication.tests.replica.copies import SEGMENT


def main() -> None:
    """Say the number of each message, and its status."""
    path, flush = sys.argv[1:3]
    port, number, batch = map(int, sys.argv[3:])
    section = {"port": port, "in_sync_replicas": 2, "slave_timeout_ms": 60_000}
    more: dict[str, Any] = {"replicator": "rocketmq-ha", "rocketmq_ha": section}
    more["on_late"] = "return"
    with lakelog.open(path, flush=flush, segment_size_bytes=SEGMENT, **more) as store:
        while True:
            numbers = range(number, number + batch)
            messages = [
                lakelog.Message("orders", each.to_bytes(8) * 60, keys=f"k{each}", queue_id=each % 4)
                for each in numbers
            ]
            results = store.put_batch(messages)
            for each, result in zip(numbers, results, strict=True):
                sys.stdout.write(f"{each} {result.status.name}\n")
                sys.stdout.flush()
            if results[0].status.name != "PUT_OK":
                time.sleep(0.005)  # a slave comes back sooner than the log grows
            number += batch
