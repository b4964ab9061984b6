"""Apache's Go client of the remoting protocol (rocketmq-client-go v2) has its outcomes here.

It parses a route by hand: a blank behind a colon was a part of the broker's address.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog_broker.settings import BrokerSettings
from plugins.broker.tests.serving import served
from tests.support import maven, required

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
_SOURCES: Final = Path(__file__).parent / "go_remoting"
EXPECTED: Final = {
    "send": "20",
    "a topic of a bad name": "was refused",
    "tags": " ".join(f"m{n:02}" for n in range(1, 20, 2)),
    "SQL filters": "m17 m18 m19",
    "batch": "b0 b1 b2",
    "orderly": " ".join(map(str, range(9))),
    "broadcast": "b0 b1 b2",
    "delayed": "later",
    "retries": "b0 b1 b2, b1 after 1 retries",
    "transactions": "committed left open, checked true",
    "end": "reached",
}


def _build_into(target: Path) -> None:
    environ = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    maven.run(["go", "build", "-o", str(target), "."], _SOURCES, {**os.environ, **environ})


def outcomes(address: str, home: Path) -> dict[str, str]:
    """What the program prints, by feature.

    :param address: ``host:port`` of the name server
    :param home: a folder for the client's files
    """
    if shutil.which("go") is None:
        required.missing("a client needs go")
    state = maven.digest([_SOURCES / name for name in ("go.mod", "go.sum", "main.go")])
    built = maven.once(maven.CACHE / f"remoting-go-{state}", _build_into)
    environ = {**os.environ, "HOME": str(home), "ROCKETMQ_GO_LOG_LEVEL": "fatal"}
    command = [str(built / "remotingclient"), address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [each[2:] for each in done.stdout.splitlines() if each.startswith("= ")]
    return dict(each.split(": ", 1) for each in lines)


def test_outcomes(tmp_path: Path) -> None:
    settings = BrokerSettings(port=0, transaction_timeout_s=1, transaction_check_interval_s=1)
    with (
        lakelog.open(tmp_path / "store", mode="exclusive") as store,
        served(store, settings) as broker,
    ):
        assert outcomes(broker.address, tmp_path) == EXPECTED
