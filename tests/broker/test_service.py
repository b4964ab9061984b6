"""The broker as a follower of ``lakelog serve``."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import lakelog
from lakelog.errors import StoreLocked
from lakelog_broker.embedded import EmbeddedBroker
from plugins.broker.tests.raw_client import send
from plugins.daemon.tests.support import serving
from tests.broker.service import broker_address

CHOSEN = ('followers=["broker"]', "broker.port=0", "serve.hang_timeout_ms=20000")


def test_it_serves_beside_the_owner_and_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with serving(tmp_path, settings=CHOSEN) as serve:
        assert send(broker_address(serve), "orders", b"a") == 0
        with pytest.raises(StoreLocked, match="another broker"):
            EmbeddedBroker(path).start()
        with lakelog.open(path) as beside:
            beside.put(lakelog.Message("orders", b"beside", queue_id=0))
        os.kill(serve.running("broker"), signal.SIGKILL)
        assert send(broker_address(serve, restarts=1), "orders", b"b") == 2
        assert serve.row("broker")["kind"] == "follower"
        assert serve.stop() == 0
    assert "killed" not in serve.events()
    with lakelog.open(path, mode="read") as store:
        assert [bytes(each.body) for each in store.read("orders", 0)] == [b"a", b"beside", b"b"]
