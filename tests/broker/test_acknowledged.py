"""With flush=group-commit a kill loses no message that was acknowledged to a Java client."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import lakelog
from tests.broker.later import java, lakelogs_broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
THREADS = 16
MESSAGES = 300
"""Acknowledged messages after which the broker is killed."""


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_acknowledged_messages_survive_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    monkeypatch.setenv("LAKELOG_FLUSH", "group-commit")
    acknowledged: set[str] = set()
    for round_ in range(kills):
        with lakelogs_broker(tmp_path) as serving:
            words = java(
                "Acknowledged",
                str(serving.server),
                "Kept",
                str(round_),
                str(THREADS),
                home=tmp_path,
            )
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
                assert client.stdout is not None
                told = 0
                for line in client.stdout:
                    if line.startswith("ok "):
                        acknowledged.add(line.split()[1])
                        told += 1
                        if told == MESSAGES:
                            serving.end(killed=True)
                assert client.wait() == 0
                assert told >= MESSAGES
    with lakelog.open(tmp_path / "store", mode="exclusive") as store:
        assert store.settings.core.flush == "group-commit"
        kept = {
            each.body.decode()
            for queue in store.queues("Kept")
            for each in store.read("Kept", queue.queue_id)
        }
    assert acknowledged <= kept
    assert len(acknowledged) >= kills * MESSAGES
