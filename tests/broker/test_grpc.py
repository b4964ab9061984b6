"""RocketMQ's Java, Go and Node clients of the gRPC protocol against lakelog and the proxy.

Each program is built once for each state of its source. Its packages come from the registry of its
language; Go keeps them, and what it compiled, in the user's caches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.settings import BrokerSettings
from lakelog_queues.configs import set_group_settings, write_topic
from lakelog_rocketmq.config import TopicConfig
from plugins.broker.tests.serving import served
from tests.replication.masterbroker import eventually, free_ports, has_route, is_free, name_server
from tests.support import maven, required
from tests.support.javaprogram import QUICK

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

Client: TypeAlias = Callable[[str, Path], list[str]]
_HERE: Final = Path(__file__).parent
_ORACLE: Final = _HERE.parent / "oracle"
_TYPES: Final = {"normal": "NORMAL", "ordered": "FIFO", "delayed": "DELAY", "half": "TRANSACTION"}
_GROUPS: Final = ("pushing", "tags", "properties", "changing", "delaying", "halves")
_IN_ORDER: Final = ("ordering", "pushing-in-order")
_PROXY: Final = """{{"rocketMQClusterName":"DefaultCluster","proxyMode":"LOCAL",
"localServeAddr":"127.0.0.1","namesrvAddr":"{}","grpcServerPort":{},"remotingListenPort":{}}}"""

_OF_JAVA: Final = {
    "sent": "40",
    "push consumer": "true [again 2, m3]",
    "tags": f"[{', '.join(sorted(f'm{n}' for n in range(1, 20, 2)))}]",
    "properties": "[m17, m18, m19]",
    "changed": "once more, attempt 2",
    "ordered": f"[{', '.join(map(str, range(20)))}]",
    "a message of another type": "was refused",
    "end": "reached",
}
OF_GO: Final = {
    "tags": " ".join(f"m{n:02}" for n in range(1, 20, 2)),
    "properties": "m17 m18 m19",
    "changed": "once more, attempt 2, keys [a b], tag late, p ü",
    "ordered": " ".join(map(str, range(20))),
    "delayed": "later, early false",
    "transactions": "committed left open, checked true",
    "a topic of a bad name": "was refused",
    "end": "reached",
}
OF_NODE: Final = {
    **OF_GO,
    "push consumer": "20, m03 at attempt 2",
    "pushed in order": OF_GO["ordered"],
}


def _java(endpoint: str, home: Path, security: str = "ssl") -> list[str]:
    need("javac", "mvn")
    folder = _HERE / "java" / "grpc"
    library, source = maven.jars(folder / "pom.xml"), folder / "GrpcClient.java"
    path = os.fspath(library / "*")

    def compile_into(folder: Path) -> None:
        maven.run(["javac", "-nowarn", "-cp", path, "-d", str(folder), str(source)])

    state = f"{library.name}-{maven.digest([source])}"
    classes = maven.once(maven.CACHE / f"grpc-client-{state}", compile_into)
    return [
        *("java", "-Xmx128m", *QUICK, f"-Duser.home={home}"),
        *("-cp", os.pathsep.join([path, str(classes)])),
        *("lakelog.broker.GrpcClient", endpoint, security),
    ]


def go(endpoint: str, home: Path) -> list[str]:
    need("go")
    folder = _HERE / "go"
    sources = [folder / name for name in ("go.mod", "go.sum", "main.go")]
    environ = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}

    def build_into(target: Path) -> None:
        maven.run(["go", "build", "-o", str(target), "."], folder, {**os.environ, **environ})

    built = maven.once(maven.CACHE / f"grpc-go-{maven.digest(sources)}", build_into)
    return [str(built / "client"), endpoint]


def node(endpoint: str, home: Path) -> list[str]:
    need("node", "npm")
    sources = [_HERE / "node" / name for name in ("package.json", "client.js")]
    options = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "-s")

    def install_into(target: Path) -> None:
        for each in sources:
            shutil.copy(each, target)
        maven.run(["npm", "install", "--prefix", str(target), *options])

    installed = maven.once(maven.CACHE / f"grpc-node-{maven.digest(sources)}", install_into)
    return ["node", str(installed / "client.js"), endpoint]


def need(*programs: str) -> None:
    absent = [each for each in programs if shutil.which(each) is None]
    if absent:
        required.missing(f"a client needs {' and '.join(absent)}")


def outcomes(client: Client, endpoint: str, home: Path) -> dict[str, str]:
    environ = {**os.environ, "HOME": str(home), "rocketmq.client.logRoot": str(home)}
    done = subprocess.run(
        client(endpoint, home), capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [each[2:] for each in done.stdout.splitlines() if each.startswith("= ")]
    return dict(each.split(": ", 1) for each in lines)


def configure(store: Path) -> None:
    """Write a store's topics of each type, and its groups, two of which are ordered."""
    files = RealFileSystem()
    for name in ("config", "commitlog"):
        (store / name).mkdir(parents=True)
    (store / "lock").touch()
    for topic, kind in _TYPES.items():
        write_topic(files, store, TopicConfig(topic, 4, 4, 6, {"message.type": kind}))
    for group in (*_GROUPS, *_IN_ORDER):
        set_group_settings(files, store, group, {"consumeMessageOrderly": group in _IN_ORDER})


@contextmanager
def _proxy(folder: Path) -> Iterator[str]:
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
        (home / "proxy.json").write_text(_PROXY.format(names, grpc, remoting))
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
            return not is_free(grpc) and has_route(names, "ordered")

        try:
            eventually(answers)
            yield f"127.0.0.1:{grpc}"
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        pytest.param(_java, _OF_JAVA, id="java"),
        pytest.param(partial(_java, security="plain"), _OF_JAVA, id="java-plain"),
        pytest.param(go, OF_GO, id="go"),
        pytest.param(node, OF_NODE, id="node"),
    ],
)
@pytest.mark.parametrize("server", ["lakelog", pytest.param("proxy", marks=pytest.mark.slow)])
def test_outcomes(tmp_path: Path, server: str, client: Client, expected: dict[str, str]) -> None:
    home = tmp_path / "home"
    configure(home / "store")
    if server == "proxy":
        with _proxy(tmp_path) as endpoint:
            assert outcomes(client, endpoint, tmp_path) == expected
        return
    settings = BrokerSettings(
        port=0, grpc_port=0, transaction_timeout_s=1, transaction_check_interval_s=1
    )
    with (
        lakelog.open(home / "store", mode="exclusive") as store,
        served(store, settings) as broker,
    ):
        assert outcomes(client, broker.grpc_address, tmp_path) == expected
