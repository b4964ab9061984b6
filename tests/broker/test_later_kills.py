"""A broker is killed while messages wait: all are delivered, none early, none rolled back."""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.later import Client, java_client, lakelogs_broker
from tests.replication.masterbroker import free_ports
from tests.support.sampling import chance

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]
TOPIC = "Kills"
KINDS = {
    "delay": "delay 1",
    "timer": "timer 900",
    "commit": "transaction commit",
    "rollback": "transaction rollback",
    "asked": "transaction unknown",
    "never": "transaction unknown",
}
OUTCOMES = {"asked": "-commit", "commit": "-commit", "rollback": "-rollback", "never": "-rollback"}
PER_ROUND = 20
_LOG = logging.getLogger(__name__)


def commands(round_number: int) -> list[str]:
    """Return commands for messages of each kind; a body has the outcome of its transaction."""
    return [
        f"{command} {kind}-{round_number}-{number}{OUTCOMES.get(kind, '')}"
        for number in range(PER_ROUND)
        for kind, command in KINDS.items()
    ]


def kill_rounds(tmp_path: Path, rounds: int, life_s: float) -> dict[str, int]:
    """Send in each round, and kill the broker meanwhile; returns counts of messages.

    :param life_s: the longest life of a broker; progress is saved every five seconds
    """
    random, (port,) = chance(), free_ports(1)
    with ExitStack() as stack:
        broker = stack.enter_context(lakelogs_broker(tmp_path, port))
        client = stack.enter_context(java_client(broker.server, TOPIC, tmp_path))
        client.create_topic("first")
        client.do("consume")
        client.got({"first"})
        for number in range(rounds):
            client.write(*commands(number))
            client.wait_for(lambda n=number: sent_in(client, n) > PER_ROUND)
            time.sleep(random.uniform(0, life_s))
            broker.end(killed=True)
            broker = stack.enter_context(lakelogs_broker(tmp_path, port))
        client.do("delay 0 last")  # behind all others
        return check(client)


def sent_in(client: Client, round_number: int) -> int:
    """Return how many messages of a round are acknowledged so far."""
    return sum(f"-{round_number}-" in each["body"] for each in client.of("sent"))


def check(client: Client) -> dict[str, int]:
    """Check that no message is lost, early, or delivered after a rollback; return counts."""
    sent = {each["body"]: each for each in client.of("sent")}
    due = {body for body in sent if not body.endswith("-rollback")}
    client.got(due)
    got = client.of("got")
    assert not [each["body"] for each in got if each["body"].endswith("-rollback")]
    for each in got:
        first = sent.get(each["body"])
        if first is not None and each["body"].startswith(("delay", "timer")):
            assert each["stored"] >= (first["due"] or first["begun"] + 1_000), each
    places = {(each["body"], each["place"]) for each in got}
    again = Counter(body.partition("-")[0] for body, _ in places)
    again.subtract(body.partition("-")[0] for body in {body for body, _ in places})
    return {
        "acknowledged": len(sent),
        "due": len(due),
        **{
            f"{kind} delivered again": again[kind] for kind in ("delay", "timer", "commit", "asked")
        },
        "consumed again": len(got) - len(places),
    }


@pytest.mark.parametrize(
    ("rounds", "life_s"),
    [(2, 1.5), *(pytest.param(20, life_s, marks=pytest.mark.slow) for life_s in (1.5, 8))],
)
def test_kills_lose_nothing(tmp_path: Path, rounds: int, life_s: float) -> None:
    counts = kill_rounds(tmp_path, rounds, life_s)
    _LOG.info("%d rounds: %s", rounds, counts)
    assert counts["acknowledged"] > rounds * PER_ROUND
