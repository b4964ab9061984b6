"""Delayed messages in a directory are delivered when the other broker serves it, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.later import BROKERS, Client, java_client

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
LONG_MS = 12_000
SHORT_MS = 1_500


def leave_waiting(client: Client) -> dict[str, dict[str, Any]]:
    client.create_topic("plain")
    client.do("consume")
    # Late timers are stored first, so that delivered messages follow waiting ones in the log.
    sent = {
        body: client.do(f"{command} {body}")
        for command, body in (
            (f"timer {LONG_MS}", "timer-late"),
            (f"timer {LONG_MS}", "timer-recalled"),
            ("delay 3", "delay-10"),
            ("transaction unknown", "half-commit"),
            ("transaction unknown", "half-rollback"),
            ("transaction commit", "ended-commit"),
            ("transaction rollback", "ended-rollback"),
            ("delay 1", "delay-1"),
            (f"timer {SHORT_MS}", "timer-soon"),
        )
    }
    client.got({"plain", "ended-commit", "delay-1", "timer-soon"})
    handle = sent["timer-recalled"]["handle"]
    assert client.do(f"recall {handle} timer-recalled")["event"] == "recalled"
    return sent


@pytest.mark.sample(1)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("first", BROKERS)
def test_what_waits_comes_from_the_other_broker(
    tmp_path: Path, first: str, *, killed: bool
) -> None:
    (second,) = BROKERS.keys() - {first}
    topic = "Takeover"
    with BROKERS[first](tmp_path) as broker:
        with java_client(broker.server, topic, tmp_path) as client:
            sent = leave_waiting(client)
        # Its lines are read to the end: what was got last may come no more.
        before = {each["body"]: each["place"] for each in client.of("got")}
        broker.end(killed=killed)
    with (
        BROKERS[second](tmp_path) as broker,
        java_client(broker.server, topic, tmp_path) as client,
    ):
        client.do("consume")
        client.got({"timer-late", "delay-10"} | ({"half-commit"} - before.keys()))
        found = {each["body"]: each for each in client.of("got")}
        assert not {"timer-recalled", "half-rollback", "ended-rollback"} & (
            found.keys() | before.keys()
        )
        if first == "rocketmq" and not killed:  # no redelivery after a clean end
            places = {(each["body"], each["place"]) for each in client.of("got")}
            assert [body for body, place in places if before.get(body, place) != place] == []
        assert found["timer-late"]["stored"] >= sent["timer-late"]["due"]
        assert found["delay-10"]["stored"] >= sent["delay-10"]["begun"] + 10_000
