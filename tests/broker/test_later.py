"""Delay levels, timers, transactions, recalls: the same outcomes of both brokers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.broker.later import BROKERS, Client, java_client

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
EARLIEST_MS = {"delay-1": 1_000, "timer-1500": 1_500}
COMES = {"plain", "delay-1", "timer-1500", "ended-commit", "asked-commit"}
NEVER = {"ended-rollback", "asked-rollback", "recalled"}


def outcome(client: Client) -> dict[str, Any]:
    """Send one message of each kind; return the outcomes."""
    client.create_topic("plain")
    client.do("consume")
    client.got({"plain"})
    sent = {
        body: client.do(f"{command} {body}")
        for command, body in (
            ("delay 1", "delay-1"),
            ("timer 1500", "timer-1500"),
            ("timer 3000", "recalled"),
            ("transaction commit", "ended-commit"),
            ("transaction rollback", "ended-rollback"),
            ("transaction unknown", "asked-commit"),
            ("transaction unknown", "asked-rollback"),
        )
    }
    recalled = client.do(f"recall {sent['recalled']['handle']} recalled")
    errors = [
        client.do(line)["event"]
        for line in (f"timer {4 * 24 * 3_600_000} too-late", "recall nonsense wrong")
    ]
    client.got(COMES)
    client.do("timer 3500 last")  # no delivery follows it
    client.got({"last"})
    found = {each["body"]: each for each in client.of("got")}
    assert not NEVER & found.keys()
    for body, span_ms in EARLIEST_MS.items():
        due = sent[body]["due"] or sent[body]["begun"] + span_ms
        assert found[body]["stored"] >= due, body
    assert {"asked-commit", "asked-rollback"} <= {each["body"] for each in client.of("checked")}
    return {
        "got": sorted(each["body"] for each in client.of("got")),
        "topics asked about": {each["topic"] for each in client.of("checked")},
        "recalled": recalled["event"],
        "errors": errors,
        "handles": {body: each["handle"] != "null" for body, each in sent.items()},
    }


def test_both_brokers_have_the_same_outcomes(tmp_path: Path) -> None:
    def at(name: str) -> dict[str, Any]:
        home = tmp_path / name
        home.mkdir()
        with BROKERS[name](home) as broker, java_client(broker.server, "Later", home) as client:
            return outcome(client)

    with ThreadPoolExecutor() as pool:  # both spend most of the time in waiting
        found = dict(zip(BROKERS, pool.map(at, BROKERS), strict=True))
    ours, theirs = found["lakelog"].pop("got"), found["rocketmq"].pop("got")
    assert ours == sorted({*ours})
    # RocketMQ notes ends of transactions a bit later, and checks others again.
    assert ours == sorted({*theirs})
    assert found["lakelog"] == found["rocketmq"]
