"""RocketMQ's Java client of the gRPC protocol: the same program against lakelog and the proxy."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.settings import BrokerSettings
from lakelog_queues.configs import write_group, write_topic
from lakelog_replication.remoting import BrokerRefused, call
from lakelog_rocketmq.config.groups import GroupConfig
from lakelog_rocketmq.config.topics import TopicConfig
from plugins.broker.tests.serving import served
from tests.broker.grpcclient import outcomes
from tests.replication.broker import eventually
from tests.replication.masterbroker import free_ports
from tests.replication.nameserver import name_server
from tests.support import maven

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

_HERE: Final = Path(__file__).parent
_ORACLE: Final = _HERE.parent / "oracle"
GET_ROUTE: Final = 105
EXPECTED: Final = {
    "sent": "40",
    "push consumer": "true [again 2, m3]",
    "tags": f"[{', '.join(sorted(f'm{n}' for n in range(1, 20, 2)))}]",
    "properties": "[m17, m18, m19]",
    "changed": "once more, attempt 2",
    "ordered": f"[{', '.join(map(str, range(20)))}]",
    "a message of another type": "was refused",
    "end": "reached",
}


def configure(store: Path) -> None:
    """Topics of two types, and a group that gets messages in order."""
    files = RealFileSystem()
    for name in ("config", "commitlog"):
        (store / name).mkdir(parents=True)
    (store / "lock").touch()
    for topic, kind in (("normal", "NORMAL"), ("ordered", "FIFO")):
        write_topic(files, store, TopicConfig(topic, 4, 4, 6, {"message.type": kind}))
    for group in ("pushing", "tags", "properties", "ordering"):
        write_group(files, store, GroupConfig(group, 16, group == "ordering"))


@pytest.mark.parametrize("security", ["ssl", "plain"])
def test_outcomes_at_lakelog(tmp_path: Path, security: str) -> None:
    configure(tmp_path / "store")
    with (
        lakelog.open(tmp_path / "store", mode="exclusive") as store,
        served(store, BrokerSettings(port=0, grpc_port=0)) as broker,
    ):
        assert outcomes(broker.grpc_address, security, tmp_path) == EXPECTED


@pytest.mark.slow
def test_outcomes_at_the_proxy(tmp_path: Path) -> None:
    configure(tmp_path / "home" / "store")
    with proxy(tmp_path) as endpoint:
        assert outcomes(endpoint, "ssl", tmp_path) == EXPECTED


@contextmanager
def proxy(folder: Path) -> Iterator[str]:
    """A real proxy with its broker in the same process, killed at the end."""
    home, jars = folder / "home", maven.jars(_HERE / "proxy" / "pom.xml")
    broker, slaves, grpc, remoting = free_ports(4)
    with name_server(folder / "names") as names:
        settings: dict[str, Any] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": broker,
            "haListenPort": slaves,
            "namesrvAddr": names,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
            "mappedFileSizeCommitLog": 1 << 24,
            "enablePropertyFilter": "true",
            "timerWheelEnable": "true",
            "enableCompaction": "false",
            "diskMaxUsedSpaceRatio": 95,
        }
        conf = home / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (home / "proxy.json").write_text(
            '{"rocketMQClusterName":"DefaultCluster","proxyMode":"LOCAL","localServeAddr":"127.0.0.1",'
            f'"namesrvAddr":"{names}","grpcServerPort":{grpc},"remotingListenPort":{remoting}}}'
        )
        command = [
            *("java", f"@{_ORACLE / 'jvm.args'}", "-Xmx768m", "-XX:TieredStopAtLevel=1"),
            *("-XX:MaxDirectMemorySize=512m", f"-Duser.home={home}"),
            f"-Drmq.logback.configurationFile={_ORACLE / 'resources' / 'logback.xml'}",
            *("-cp", os.fspath(jars / "*"), "org.apache.rocketmq.proxy.ProxyStartup"),
            *("-pm", "local", "-n", str(names), "-bc", str(conf), "-pc", str(home / "proxy.json")),
        ]
        environ = {**os.environ, "ROCKETMQ_HOME": str(home), "RMQ_PROXY_HOME": str(home)}
        with (home / "out").open("ab") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environ, cwd=home
            )

        def answers() -> bool:
            assert process.poll() is None, (home / "out").read_text(errors="replace")[-3000:]
            try:
                socket.create_connection(("127.0.0.1", grpc), 1).close()
                call(names, GET_ROUTE, {"topic": "ordered"})
            except (OSError, BrokerRefused):
                return False
            return True

        try:
            eventually(answers)
            yield f"127.0.0.1:{grpc}"
        finally:
            process.kill()
            process.wait()
