"""Brokers and clients are killed under load with all kinds of messages; brokers take turns.

No acknowledged message is lost, none is delivered early or after a rollback, and none is delivered
again unless the protocol allows it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from lakelog_replication.settings import Address
from tests.broker.later import Serving, lakelogs_broker, rocketmqs_broker
from tests.broker.load import (
    MEMBERS,
    Clients,
    await_route,
    configure,
    early,
    redelivered,
    rolled_back,
)
from tests.replication.masterbroker import free_ports
from tests.support.sampling import chance

pytestmark = [pytest.mark.java, pytest.mark.timeout(3600)]
_LOG = logging.getLogger(__name__)
CHECKS: Final = 1_000
"""Checks per transaction, one per second; clients may take some time to start."""
SETTINGS: Final = (
    *("--set", "flush=group-commit"),
    *("--set", "broker.transaction_check_interval_s=1"),
    *("--set", f"broker.transaction_check_limit={CHECKS}"),
)
KILLED: Final = ("broker", "client", "both")
LIVES_S: Final = 1.0, 3.0, 8.0
"""Longest times between sends of a round and its kill; progress is saved every five seconds."""
SENT: Final = 10
"""Acknowledged sends in a round before its kill, at least."""


def rounds_of(path: Path, clients: Clients, killed: list[str]) -> None:
    """Kill and restart in each round; then let the clients finish, and check."""
    random, (port,) = chance(), free_ports(1)
    with ExitStack() as stack:
        serving = stack.enter_context(lakelogs_broker(path, port, SETTINGS))
        configure(serving.server)
        for member in MEMBERS:
            clients.start(member, serving.server)
        for number, what in enumerate(killed):
            clients.await_sends(SENT)
            time.sleep(random.uniform(0, random.choice(LIVES_S)))
            dying = ("dies",) if what in {"client", "both"} else ()
            clients.kill(*dying, broker=serving if what in {"broker", "both"} else None)
            if what in {"broker", "both"}:
                serving = stack.enter_context(lakelogs_broker(path, port, SETTINGS))
            for member in dying:
                clients.start(member, serving.server)
            _LOG.info("round %d: %s killed", number, what)
        clients.quiet()
        clients.all_done()
        check(clients)
        events = clients.events()
        wrong, counts = redelivered(events, clients.kills)
        _LOG.info("%s", {**Counter(each["event"] for each in events), **counts})
        assert not wrong, (len(wrong), wrong[:3])
        clients.kill(*MEMBERS, broker=serving)


def check(clients: Clients) -> None:
    """Check that no delivery was early, or of a rolled back message."""
    events = clients.events()
    assert not early(events)[:3]
    assert not rolled_back(events)[:3]


@contextmanager
def clients_of(home: Path, *, pause_ms: int) -> Iterator[Clients]:
    """Yield clients, which pause between sends; they are killed at the end of the test."""
    clients = Clients(home, pause_ms)
    try:
        yield clients
    finally:
        clients.end()


def test_a_round_loses_nothing(tmp_path: Path) -> None:
    """One of the clients is killed with the broker, the other one outlives it."""
    with clients_of(tmp_path, pause_ms=60) as clients:
        rounds_of(tmp_path, clients, ["both"])


@pytest.mark.slow
def test_sixty_rounds_lose_nothing_and_brokers_take_turns(tmp_path: Path) -> None:
    with clients_of(tmp_path, pause_ms=20) as clients:
        random = chance()
        rounds_of(tmp_path, clients, [random.choice(KILLED) for _ in range(60)])
        with lakelogs_broker(tmp_path, 0, SETTINGS) as serving:
            configure(serving.server)
            send_and_kill(clients, serving.server, serving)
        with rocketmqs_broker(tmp_path, transactionCheckMax=CHECKS) as serving:
            await_route(serving.server, serving.process.client)
            finish(clients, serving.server, dead_letters=False)
            send_and_kill(clients, serving.server, serving)
        with lakelogs_broker(tmp_path, 0, SETTINGS) as serving:
            finish(clients, serving.server)


def send_and_kill(clients: Clients, server: Address, broker: Serving) -> None:
    """Start clients, and kill them and the broker while they send."""
    for member in MEMBERS:
        clients.start(member, server)
    clients.await_sends(20 * SENT)
    clients.kill(*MEMBERS, broker=broker)


def finish(clients: Clients, server: Address, *, dead_letters: bool = True) -> None:
    """Start clients that consume everything, and check."""
    for member in MEMBERS:
        clients.start(member, server)
    clients.quiet()
    clients.all_done(dead_letters=dead_letters)
    check(clients)
    clients.end()
