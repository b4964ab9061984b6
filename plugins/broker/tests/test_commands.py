"""``lakelog broker`` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog_broker.remoting.requests import RequestCode
from lakelog_replication.remoting import BrokerRefused, call
from lakelog_replication.settings import Address
from plugins.broker.tests.raw_client import send
from tests.support.commands import invoke

LAKELOG: Final = (sys.executable, "-m", "lakelog", "broker")
SMALL: Final = ("--port", "0", "--set", "segment_size_bytes=1MiB", "--set", "preallocate=false")


@attrs.frozen
class RunningBroker:
    """A broker, and the line with which it said that it is ready."""

    process: subprocess.Popen[str]
    said: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.said["namesrv"])


@contextmanager
def broker(store: Path, *options: str, **environ: str) -> Iterator[RunningBroker]:
    process = subprocess.Popen(
        [*LAKELOG, str(store), "--json", *SMALL, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environ,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"it did not serve: {process.communicate()[1]}")
        yield RunningBroker(process, json.loads(line))
    finally:
        process.kill()
        process.communicate()


def refused(*arguments: str) -> tuple[int, str]:
    done = invoke("broker", *arguments)
    assert "Traceback" not in done.stderr
    return done.exit_code, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_offsets_and_closes_the_store(
    tmp_path: Path, number: signal.Signals
) -> None:
    store = tmp_path / "store"
    with broker(store) as running:
        assert running.said == {
            "namesrv": running.address,
            "endpoints": None,
            "store": str(store),
        }
        send(running.address, "orders", b"a")
        fields = {
            "consumerGroup": "billing",
            "topic": "orders",
            "queueId": "0",
            "commitOffset": "1",
        }
        call(Address.parse(running.address), RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        running.process.send_signal(number)
        assert running.process.wait(60) == 0
    assert not (store / "abort").exists()
    with lakelog.open(store, mode="read") as found:
        assert found.groups()["billing"] == {"orders": {0: 1}}
        assert [bytes(each.body) for each in found.read("orders", 0)] == [b"a"]


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with broker(store) as running:
        for each in (b"a", b"b"):
            send(running.address, "orders", each)
        running.process.kill()
        running.process.wait(60)
    with broker(store) as running:
        assert send(running.address, "orders", b"c") == 2
        running.process.terminate()
        assert running.process.wait(60) == 0
    with lakelog.open(store, mode="read") as found:
        assert [bytes(each.body) for each in found.read("orders", 0)] == [b"a", b"b", b"c"]


def test_options_beat_the_section_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[broker]\nname = "from-file"\ncluster = "of-file"\n')
    options = ("--settings", str(file), "--name", "b", "--queues", "3")
    with broker(tmp_path / "store", *options) as running:
        address = Address.parse(running.address)
        cluster = call(address, RequestCode.GET_BROKER_CLUSTER_INFO).content()
        assert cluster["clusterAddrTable"] == {"of-file": ["b"]}
        send(running.address, "orders", b"a")
        route = call(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}).content()
        assert route["queueDatas"][0]["writeQueueNums"] == 3
    with (
        broker(tmp_path / "other", "--no-auto-create") as running,
        pytest.raises(BrokerRefused, match="not exist"),
    ):
        send(running.address, "orders", b"a")


def test_it_tells_its_manager_when_it_is_ready(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        with broker(tmp_path / "store", NOTIFY_SOCKET=str(tmp_path / "notify")) as running:
            assert (
                manager.recv(4096).decode() == f"STATUS=name server and broker at {running.address}"
            )
            assert "READY=1" in manager.recv(4096).decode().splitlines()
            running.process.terminate()
            assert manager.recv(4096) == b"STOPPING=1"


def test_each_obstacle_is_a_clear_error(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with broker(store) as running:
        code, said = refused(str(store), *SMALL)
        assert (code, "another broker serves this store" in said) == (3, True), said
        port = running.address.rpartition(":")[2]
        code, said = refused(str(tmp_path / "other"), "--port", port)
        assert code == 3
        assert f"127.0.0.1:{port} cannot be bound: Address already in use" in said
        running.process.terminate()
        running.process.wait(60)
    with lakelog.open(store, mode="exclusive"):
        command = [*LAKELOG, str(store), *SMALL]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, str(os.getpid()) in done.stderr) == (3, True), done.stderr
    code, said = refused(str(store), "--port", "70000")
    assert (code, "--port" in said) == (2, True), said
    code, said = refused(str(store), "--set", "broker.prot=1")
    assert (code, "broker.port" in said) == (2, True), said
    code, said = refused(str(store), "--table", "a.b")
    assert (code, "--to" in said) == (2, True), said
