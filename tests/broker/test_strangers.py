"""A broker whose ports have many more strangers than it has descriptors serves its clients."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

import lakelog
from lakelog_broker.grpc.mapping import SERVICE, proto
from lakelog_broker.remoting.requests import RequestCode
from lakelog_replication.remoting import BrokerRefused, call
from lakelog_replication.settings import Address
from plugins.broker.tests.raw_client import send
from tests.support.waiting import until

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 60
OK: Final = 20_000


@contextmanager
def broker(folder: Path, descriptors: int) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A broker that may have so many descriptors, and what it prints at its start."""
    options = ("--json", "--port", "0", "--grpc-port", "0", "--queues", "1")
    small = ("--set", "segment_size_bytes=64KiB")
    command = [sys.executable, "-m", "lakelog_cli.main", "broker", str(folder / "store")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*command, *options, *small],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def strangers(row: Any, count: int) -> Iterator[None]:
    """So many connections, from the time when all have tried it."""
    ports = [row[name].rpartition(":")[2] for name in ("namesrv", "endpoints")]
    command = [sys.executable, "-m", "tests.broker.strangers", *ports, str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
            yield
        finally:
            process.kill()


def remoting_send(address: str, body: bytes) -> bool:
    """Send by a new connection; whether it was acknowledged."""
    with suppress(BrokerRefused):
        return send(address, "orders", body) > 0
    return False


def grpc_send(endpoints: str, body: bytes) -> bool:
    """Send by a new channel, and again if its connection breaks, as clients do."""
    message = proto("Message")(topic={"name": "orders"}, body=body)
    message.system_properties.message_id = body.decode()
    request = proto("SendMessageRequest")(messages=[message])
    with grpc.insecure_channel(endpoints) as channel:
        made = channel.unary_unary(
            f"/{SERVICE.full_name}/SendMessage",
            proto("SendMessageRequest").SerializeToString,
            proto("SendMessageResponse").FromString,
        )
        pairs = [("x-mq-client-id", "honest")]
        try:
            answer = made(request, metadata=pairs, timeout=PATIENCE_S, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return False
            raise
    assert answer.status.code == OK
    return True


def pulled(address: str, count: int) -> bool:
    """Whether the queue gives so many messages to a consumer."""
    fields = {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "0",
        "queueOffset": str(count - 1),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "subscription": "*",
        "commitOffset": "0",
    }
    with suppress(BrokerRefused):
        answer = call(Address.parse(address), RequestCode.PULL_MESSAGE, fields)
        return bool(answer.body)
    return False


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("descriptors", "count", "rounds"),
    [(256, 200, 2), pytest.param(1024, 2000, 30, marks=pytest.mark.slow)],
)
def test_clients_are_served_beside_strangers(
    tmp_path: Path, descriptors: int, count: int, rounds: int
) -> None:
    """All that is acknowledged is delivered, the log grows, and the broker ends by itself."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < count + 100:
        pytest.skip(f"needs {count + 100} open files")
    acknowledged: list[bytes] = []
    with broker(tmp_path, descriptors) as (process, row):
        assert send(row["namesrv"], "orders", b"first") == 0
        acknowledged.append(b"first")
        with strangers(row, count):
            for number in range(rounds):
                body = b"remoting-%d " % number + b"x" * 8_000
                until(partial(remoting_send, row["namesrv"], body))
                acknowledged.append(body)
                body = b"grpc-%d" % number
                until(partial(grpc_send, row["endpoints"], body))
                acknowledged.append(body)
                until(lambda: pulled(row["namesrv"], len(acknowledged)))
                assert len(os.listdir(f"/proc/{process.pid}/fd")) <= descriptors * 9 // 10
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
    log = (tmp_path / "log").read_text().splitlines()
    assert len([line for line in log if "for a new connection" in line]) <= 10
    with lakelog.open(tmp_path / "store", mode="read") as store:
        found = [bytes(each.body) for each in store.read("orders", 0)]
    # A client that sends again, as its connection broke, may send twice.
    assert list(dict.fromkeys(found)) == acknowledged
