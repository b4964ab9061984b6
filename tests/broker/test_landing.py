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
from plugins.lake.tests.landing.tables import read
from tests.broker.service import broker_address
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)
TABLE: Final = "shop.orders"
SETTINGS: Final = (
    f'lake.options=["--table", "{TABLE}", "--engine", "processes"]',
    "segment_size_bytes=1MiB",
    "serve.restart_first_ms=50",
    "serve.status_interval_ms=100",
)


@contextmanager
def landing(folder: Path) -> Iterator[Serving]:
    store, sets = folder / "store", [word for each in SETTINGS for word in ("--set", each)]
    command = [sys.executable, "-m", "lakelog", "broker", str(store), "--port", "0", *sets]
    command += ["--to", f"iceberg:{folder / 'lake'}"]
    with (folder / "out").open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield Serving(process, store, folder / "out")
        process.terminate()
        assert process.wait(60) == 0, (folder / "out").read_text()[-3000:]
    finally:
        process.kill()
        process.wait(60)


def landed(folder: Path) -> list[bytes]:
    """Return the bodies in the table; none before the table exists."""
    try:
        rows = read("iceberg", folder / "lake", TABLE)
    except Exception:  # noqa: BLE001  # whatever the reader's library says of a missing table
        return []
    return [bytes(each) for each in rows["body"].to_pylist()]


def test_every_acknowledged_message_lands_once_across_kills_of_the_broker(tmp_path: Path) -> None:
    acknowledged: list[bytes] = []
    unknown: list[bytes] = []
    with landing(tmp_path) as running:
        for kills in range(3):
            address = broker_address(running, restarts=kills)
            pid = running.running("broker")
            for number in range(40):
                body = b"%d-%d" % (kills, number)
                if number == 30 and kills < 2:
                    os.kill(pid, signal.SIGKILL)
                try:
                    send(address, "orders", body, number % 4)
                    acknowledged.append(body)
                except BrokerRefused:  # the broker is dead
                    unknown.append(body)
        until(lambda: set(acknowledged) <= set(landed(tmp_path)), seconds=120)
    found = landed(tmp_path)
    assert len(found) == len(set(found)), "a message landed twice"
    assert set(found) <= {*acknowledged, *unknown}
    assert len(acknowledged) >= 100
