"""``serve`` with producers and readers in other processes: puts continue whichever process ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import lakelog
from lakelog import GetStatus, Message
from lakelog_testing.signals import hold
from plugins.daemon.tests.support import IDLE, service, serving
from tests.support.waiting import until


def put(store: lakelog.Store, first: int, count: int = 20) -> None:
    for number in range(first, first + count):
        store.put(Message("t", b"%d" % number, queue_id=0))


def bodies(path: Path, count: int) -> list[bytes]:
    """Wait for ``count`` messages in a queue, and return their bodies, by a reader."""
    with lakelog.open(path, mode="read", segment_size_bytes="64KiB") as reader:
        until(lambda: reader.queue_bounds("t", 0) == (0, count))
        found = reader.get("t", 0, 0, count)
        assert found.status is GetStatus.FOUND
        return [bytes(each.body) for each in found.messages]


def test_puts_go_on_while_services_fall_and_come_back(tmp_path: Path) -> None:
    with serving(tmp_path, *service("idle", IDLE)) as serve:
        with lakelog.open(serve.store) as store:
            put(store, 0)
            os.kill(serve.running("idle"), signal.SIGKILL)
            put(store, 20)
            serve.running("idle", restarts=1)
            hold(serve.running("idle"))
            put(store, 40)
            serve.running("idle", restarts=2)
            put(store, 60)
        until(lambda: serve.status()["positions"]["records"] == 80)
        assert bodies(serve.store, 80) == [b"%d" % number for number in range(80)]
        assert serve.stop() == 0
    assert not (serve.store / "abort").exists()


def test_what_is_put_until_the_stop_is_there_after_it(tmp_path: Path) -> None:
    with serving(tmp_path) as serve, lakelog.open(serve.store) as store:
        put(store, 0)
        assert serve.stop() == 0
    assert not (serve.store / "abort").exists()
    assert bodies(serve.store, 20) == [b"%d" % number for number in range(20)]
