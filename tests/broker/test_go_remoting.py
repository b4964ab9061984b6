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
_EXPECTED: Final = {
    "a topic of a bad name": "was refused",
    "tags": " ".join(f"m{n:02}" for n in range(1, 20, 2)),
    "batch": "b0 b1 b2",
    "ordered": " ".join(map(str, range(9))),
    "delayed": "later",
    "again": "b0 b1 b2, b1 after 1 retries",
    "transactions": "committed left open, checked true",
    "end": "reached",
}


def _build_into(target: Path) -> None:
    environ = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    maven.run(["go", "build", "-o", str(target), "."], _SOURCES, {**os.environ, **environ})


def test_outcomes(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        required.missing("a client needs go")
    state = maven.digest([_SOURCES / name for name in ("go.mod", "go.sum", "main.go")])
    built = maven.once(maven.CACHE / f"remoting-go-{state}", _build_into)
    settings = BrokerSettings(port=0, transaction_timeout_s=1, transaction_check_interval_s=1)
    environ = {**os.environ, "HOME": str(tmp_path), "ROCKETMQ_GO_LOG_LEVEL": "fatal"}
    with (
        lakelog.open(tmp_path / "store", mode="exclusive") as store,
        served(store, settings) as broker,
    ):
        command = [str(built / "remotingclient"), broker.address]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [each[2:] for each in done.stdout.splitlines() if each.startswith("= ")]
    assert dict(each.split(": ", 1) for each in lines) == _EXPECTED
