"""The broker as a follower of ``lakelog serve``, and as ``lakelog broker --to`` runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakelog
from lakelog.errors import StoreLocked
from lakelog_broker.embedded import EmbeddedBroker
from lakelog_replication.remoting import BrokerRefused
from plugins.broker.tests.raw_client import send
from plugins.tools.tests.daemon.support import Serving, serving
from tests.replication.tables import Table
from tests.support.waiting import until

CHOSEN = ('followers=["broker"]', "broker.port=0", "serve.hang_timeout_ms=20000")
LANDING = (
    *("--set", "segment_size_bytes=1MiB", "--set", "serve.restart_first_ms=50"),
    *("--set", "serve.status_interval_ms=100"),
)


def broker_address(serve: Serving, restarts: int = 0) -> str:
    """Wait until the broker runs after at least ``restarts`` restarts; return its address."""

    def said() -> str | None:
        row = serve.row("broker")
        is_there = row.get("state") == "running" and row["restarts"] >= restarts
        text = row.get("says") if is_there else None
        return text.rpartition(" ")[2] if text else None

    return until(said)


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


@contextmanager
def landing(folder: Path, table: Table) -> Iterator[Serving]:
    store, out = folder / "store", folder / "out"
    command = [sys.executable, "-m", "lakelog", "broker", str(store), "--port", "0"]
    with out.open("ab") as said:
        process = subprocess.Popen([*command, *LANDING, *table.words], stdout=said, stderr=said)
    try:
        yield Serving(process, store, out)
        process.terminate()
        assert process.wait(60) == 0, out.read_text()[-3000:]
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_every_acknowledged_message_lands_once_across_kills_of_the_broker(
    tmp_path: Path, kills: int
) -> None:
    table = Table(tmp_path / "lake")
    acknowledged: list[bytes] = []
    unknown: list[bytes] = []

    def landed() -> list[bytes]:
        return [bytes(body) for (body,) in table.rows("body")]

    with landing(tmp_path, table) as running:
        for killed in range(kills + 1):
            address = broker_address(running, restarts=killed)
            pid = running.running("broker")
            for number in range(40):
                body = b"%d-%d" % (killed, number)
                if number == 30 and killed < kills:
                    os.kill(pid, signal.SIGKILL)
                try:
                    send(address, "orders", body, number % 4)
                    acknowledged.append(body)
                except BrokerRefused:  # the broker is dead
                    unknown.append(body)
        table.wait_for(lambda: set(acknowledged) <= set(landed()))
    found = landed()
    assert len(found) == len(set(found)), "a message landed twice"
    assert set(found) <= {*acknowledged, *unknown}
    assert len(acknowledged) >= 30 * (kills + 1)
