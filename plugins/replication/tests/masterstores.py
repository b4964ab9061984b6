"""Stores that send their logs; processes of tests import this, so it imports no pytest.

As a program it puts a message for each line that it reads, and says status and role.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lakelog
import lakelog_flush.plugin
import lakelog_hash_index.plugin
import lakelog_replication.plugin
from lakelog import Message, Store
from lakelog.files.filesystem import RealFileSystem
from lakelog_daemon.replication_status import MasterStatus, read_status

PLUGINS = [lakelog_replication.plugin, lakelog_flush.plugin, lakelog_hash_index.plugin]
SEGMENT = 1 << 16
SLOW_MS = 60_000
BEATLESS = {"heartbeat_interval_ms": 600_000, "silence_timeout_ms": 3_600_000}
"""Heartbeats would send the log too."""


def open_master(path: Path, *, flush: str = "none", **section: Any) -> Store:
    return lakelog.open(
        path,
        plugins=PLUGINS,
        segment_size_bytes=SEGMENT,
        flush=flush,
        replicator="rocketmq-ha",
        on_late="return",
        rocketmq_ha={"port": 0, "close_timeout_ms": 500, "slave_timeout_ms": SLOW_MS, **section},
    )


def status_of(path: Path) -> MasterStatus | None:
    """The status of the store's master, if there is any."""
    found = read_status(RealFileSystem(), path)
    return found if isinstance(found, MasterStatus) else None


def message(body: bytes = b"b" * 500) -> Message:
    return Message("t", body, keys="k", queue_id=0)


def main() -> None:
    with open_master(Path(sys.argv[1]), **json.loads(sys.argv[2])) as store:
        say("open", store.role)
        for _ in sys.stdin:
            say(store.put(message()).status.name, store.role)


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()
