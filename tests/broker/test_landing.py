"""Messages of clients land in a table while clients send, also across kills of the broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from lakelog_replication.remoting import BrokerRefused
from plugins.broker.tests.raw_client import send
from plugins.daemon.tests.support import Serving
from tests.broker.service import broker_address
from tests.replication.tables import Table

pytestmark = pytest.mark.timeout(300)
SETTINGS: Final = (
    "segment_size_bytes=1MiB",
    "serve.restart_first_ms=50",
    "serve.status_interval_ms=100",
)


@contextmanager
def landing(folder: Path, table: Table) -> Iterator[Serving]:
    store, sets = folder / "store", [word for each in SETTINGS for word in ("--set", each)]
    command = [sys.executable, "-m", "lakelog", "broker", str(store), "--port", "0", *sets]
    command += table.words
    with (folder / "out").open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield Serving(process, store, folder / "out")
        process.terminate()
        assert process.wait(60) == 0, (folder / "out").read_text()[-3000:]
    finally:
        process.kill()
        process.wait(60)


def landed(table: Table) -> list[bytes]:
    """Return the bodies in the table."""
    return [bytes(body) for (body,) in table.rows("body")]


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_every_acknowledged_message_lands_once_across_kills_of_the_broker(
    tmp_path: Path, kills: int
) -> None:
    table = Table(tmp_path / "lake")
    acknowledged: list[bytes] = []
    unknown: list[bytes] = []
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
        table.wait_for(lambda: set(acknowledged) <= set(landed(table)))
    found = landed(table)
    assert len(found) == len(set(found)), "a message landed twice"
    assert set(found) <= {*acknowledged, *unknown}
    assert len(acknowledged) >= 30 * (kills + 1)
