"""Prepares stores for gRPC clients, and runs RocketMQ's proxy with its broker."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.configs import set_group_settings, write_topic
from lakelog_replication.remoting import BrokerRefused, call
from lakelog_rocketmq.config.topics import TopicConfig
from tests.replication.broker import eventually
from tests.replication.masterbroker import free_ports
from tests.replication.nameserver import name_server
from tests.support import maven

_HERE: Final = Path(__file__).parent
_ORACLE: Final = _HERE.parent / "oracle"
GET_ROUTE: Final = 105
_TYPES: Final = {"normal": "NORMAL", "ordered": "FIFO", "delayed": "DELAY", "half": "TRANSACTION"}
_GROUPS: Final = ("pushing", "tags", "properties", "changing", "delaying", "halves")
_IN_ORDER: Final = ("ordering", "pushing-in-order")


def configure(store: Path) -> None:
    """Write a store's topics of each type, and its groups, two of which are ordered."""
    files = RealFileSystem()
    for name in ("config", "commitlog"):
        (store / name).mkdir(parents=True)
    (store / "lock").touch()
    for topic, kind in _TYPES.items():
        write_topic(files, store, TopicConfig(topic, 4, 4, 6, {"message.type": kind}))
    for group in (*_GROUPS, *_IN_ORDER):
        settings = {"consumeMessageOrderly": group in _IN_ORDER}
        set_group_settings(files, store, group, settings)


@contextmanager
def proxy(folder: Path) -> Iterator[str]:
    """Run RocketMQ's proxy and broker in one process, killed at the end; yields ``HOST:PORT``."""
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
            "transactionTimeOut": 1_000,
            "transactionCheckInterval": 1_000,
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
