"""Users, TLS, requests with a reply, and mqadmin, with RocketMQ's Java programs."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog_broker.codes import RequestCode
from lakelog_broker.running import running_broker
from lakelog_broker.settings import BrokerSettings
from lakelog_replication.address import Address
from lakelog_replication.remoting import call, runtime_info
from tests.broker.later import java, rocketmqs_broker
from tests.replication.broker import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
_PATIENCE_S: Final = 300


@attrs.frozen
class NamedBroker:
    """The addresses of a name server and of its broker."""

    names: Address
    broker: Address


def _tools(home: Path, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
    """Run the Java program; return the lines of its output."""
    command = java("Tools", *arguments, home=home, flags=flags)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@contextmanager
def lakelogs_broker_here(home: Path, **settings: Any) -> Iterator[Address]:
    """Run a broker in a thread of this process."""
    started = Event()
    found: list[Any] = []

    async def serve() -> None:
        stop = asyncio.Event()
        with lakelog.open(home / "store", segment_size_bytes=1 << 20) as store:
            async with running_broker(store, BrokerSettings(port=0, **settings)) as running:
                found.extend([asyncio.get_running_loop(), stop, running.address])
                started.set()
                await stop.wait()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(60)
    loop, stop, address = found
    try:
        yield Address.parse(address)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def test_users_of_java_clients(tmp_path: Path) -> None:
    """Five users: right secret, topic not permitted, wrong secret, unknown user, no user.

    The last three get no route, because the name server is part of the broker.
    """
    users = tmp_path / "users.toml"
    users.write_text(
        "[[accounts]]\naccess_key = 'ann-key'\nsecret_key = 'ann-secret'\n"
        "topic_perms = { orders = 'PUB' }\n"
    )
    cases = {
        "ann-key:ann-secret:orders": "SEND_OK",
        "ann-key:ann-secret:audit": "code 16",
        "ann-key:bad-secret:orders": "no route",
        "bob-key:ann-secret:orders": "no route",
        "::orders": "no route",
    }
    with lakelogs_broker_here(tmp_path, users=users) as server:
        lines = _tools(tmp_path, "send", str(server), *cases)
    assert dict(each.split(" ", 2)[1:] for each in lines if each.startswith("sent ")) == cases


def test_tls_of_java_clients(tmp_path: Path) -> None:
    """A client with TLS is served where TLS is required."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    pem, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ("-nodes", "-days", "2", "-subj", "/CN=tests", "-newkey", "rsa:2048")
    command = ["openssl", "req", "-x509", *subject, "-out", str(pem), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    with lakelogs_broker_here(tmp_path, tls="required", certificate=pem, key=key) as server:
        lines = _tools(tmp_path, "send", str(server), "::orders", flags=("-Dtls.enable=true",))
    assert "sent ::orders SEND_OK" in lines


def test_runtime_info_for_replicas(tmp_path: Path) -> None:
    """The fields that a replica reads are present."""
    with lakelogs_broker_here(tmp_path) as server:
        found = runtime_info(server)
    assert found.minimum == 0
    assert found.flushed <= found.end


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NamedBroker]]:
    """Run both kinds of broker."""
    homes = {each: tmp_path_factory.mktemp(each) for each in ("lakelog", "rocketmq")}
    with (
        lakelogs_broker_here(homes["lakelog"]) as ours,
        rocketmqs_broker(homes["rocketmq"]) as theirs,
    ):
        names = theirs.server  # the broker listens before it has registered there
        eventually(lambda: b"broker-a" in call(names, RequestCode.GET_BROKER_CLUSTER_INFO).body)
        yield {
            "lakelog": NamedBroker(ours, ours),
            "rocketmq": NamedBroker(theirs.server, theirs.process.client),
        }


@pytest.mark.parametrize("kind", ["lakelog", "rocketmq"])
def test_request_and_reply(servers: dict[str, NamedBroker], kind: str, tmp_path: Path) -> None:
    """The consumer's reply is delivered to the producer of the request."""
    lines = _tools(tmp_path, "request", str(servers[kind].names))
    assert [each for each in lines if each.startswith("answer")] == ["answer reply to question"]
