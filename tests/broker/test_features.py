"""What each of RocketMQ's clients can do at this broker: the table of clients in the guide.

Each program does the same: a feature works if a line ``= FEATURE: yes`` says so, and a client that
lacks it has no line. ``WRITE_TABLE_OF_CLIENTS=1`` writes what was found into the table.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.embedded import EmbeddedBroker
from lakelog_broker.settings import BrokerSettings
from lakelog_queues.configs import set_group_settings
from lakelog_replication.settings import Address
from tests.broker import test_go_remoting, test_grpc
from tests.broker.later import set_pop_mode
from tests.support import maven
from tests.support.javaprogram import java_program

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

_HERE: Final = Path(__file__).parent / "features"
_GUIDE: Final = Path(__file__).parents[2] / "core" / "docs" / "guides" / "broker.md"
_TABLE: Final = re.compile(
    r"(<!-- clients: .*? -->\n\n)(.*?)(\n\n<!-- end of clients -->)", re.DOTALL
)
_FEATURES: Final = (
    *("send", "batch", "keys", "tags", "SQL filters", "orderly", "delayed", "timed", "recall"),
    *("transactions", "retries", "dead letters", "pop", "broadcast", "request-reply"),
    *("priority", "Lite topics"),
)
_OTHER_NAMES: Final = {
    "sent": "send",
    "properties": "SQL filters",
    "ordered": "orderly",
    "changed": "pop",
    "delayed": "timed",
    "push consumer": "retries",
}
"""Features by the names of outcomes in :mod:`tests.broker.test_grpc`; some have the same."""
_POPPED: Final = "Popped"
_PATIENCE_S: Final = 500

Found: TypeAlias = Mapping[str, str]
"""``yes``, or what happened instead, by feature."""


@contextmanager
def _broker(folder: Path) -> Iterator[EmbeddedBroker]:
    settings = BrokerSettings(
        port=0, grpc_port=0, transaction_timeout_s=1, transaction_check_interval_s=1
    )
    store = folder / "store"
    test_grpc.configure(store)
    dying = {"consumeMessageOrderly": True, "retryMaxTimes": 1}
    set_group_settings(RealFileSystem(), store, "dying", dying)
    with EmbeddedBroker(store, settings, segment_size_bytes=1 << 26) as broker:
        broker.create_topic("jobs", message_type="PRIORITY")
        broker.create_topic("chats", message_type="LITE")
        set_pop_mode(Address.parse(broker.namesrv), _POPPED, f"{_POPPED}-readers")
        yield broker


def _said(command: list[str], home: Path) -> Found:
    environ = {**os.environ, "HOME": str(home), "rocketmq.client.logRoot": str(home)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environ, timeout=_PATIENCE_S
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [each[2:].split(": ", 1) for each in done.stdout.splitlines() if each[:2] == "= "]
    found = dict(lines)
    assert found.pop("end") == "reached"
    return found


def _java(client: str, version: str, program: str, broker: EmbeddedBroker, home: Path) -> Found:
    test_grpc.need("mvn")
    library = maven.jars(_HERE / "pom.xml", client_name=client, client_version=version)
    is_remoting = program == "RemotingFeatures"
    arguments = (broker.namesrv, _POPPED) if is_remoting else (str(broker.endpoints),)
    main, sources = f"lakelog.features.{program}", [_HERE / f"{program}.java"]
    return _said(java_program(library, sources, main, *arguments, home=home), home)


def _python(broker: EmbeddedBroker, home: Path) -> Found:
    pytest.importorskip("rocketmq")
    return _said([sys.executable, str(_HERE / "client.py"), str(broker.endpoints)], home)


def _rust(broker: EmbeddedBroker, home: Path) -> Found:
    test_grpc.need("cargo")
    folder = _HERE / "rust"
    sources = [folder / name for name in ("Cargo.toml", "Cargo.lock", "src/main.rs")]

    def build_into(target: Path) -> None:
        command = ["cargo", "build", "--locked", "--target-dir", str(target)]
        maven.run(command, folder)
        (target / "debug" / "features").rename(target / "features")
        shutil.rmtree(target / "debug")

    built = maven.once(maven.CACHE / f"grpc-rust-{maven.digest(sources)}", build_into)
    return _said([str(built / "features"), str(broker.endpoints)], home)


def _compared(
    client: test_grpc.Client, expected: Mapping[str, str], broker: EmbeddedBroker, home: Path
) -> Found:
    """By the outcomes of a program that prints them."""

    def newer(endpoint: str, home: Path) -> list[str]:
        return [*client(endpoint, home), "newer"]

    outcomes = {"send": "yes", **test_grpc.outcomes(newer, str(broker.endpoints), home)}
    named = ((_OTHER_NAMES.get(name, name), name, said) for name, said in outcomes.items())
    return {
        feature: "yes" if said == expected.get(name) else said
        for feature, name, said in named
        if feature in _FEATURES
    }


def _go_remoting(broker: EmbeddedBroker, home: Path) -> Found:
    expected = test_go_remoting.EXPECTED
    said = test_go_remoting.outcomes(broker.namesrv, home)
    return {
        name: "yes" if text == expected[name] else text
        for name, text in said.items()
        if name in _FEATURES
    }


_CLIENTS: Final[Mapping[str, Callable[[EmbeddedBroker, Path], Found]]] = {
    "Java 4.9.8": partial(_java, "rocketmq-client", "4.9.8", "RemotingFeatures"),
    "Java 5.3.3": partial(_java, "rocketmq-client", "5.3.3", "RemotingFeatures"),
    "Java 5.5.0": partial(_java, "rocketmq-client", "5.5.0", "RemotingFeatures"),
    "Go 2.1.2": _go_remoting,
    "Java gRPC 5.2.0": partial(_java, "rocketmq-client-java", "5.2.0", "GrpcFeatures"),
    "Go gRPC 5.1.4": partial(_compared, test_grpc.go, test_grpc.OF_GO),
    "Node gRPC 1.0.8": partial(_compared, test_grpc.node, test_grpc.OF_NODE),
    "Python gRPC 5.1.2": _python,
    "Rust gRPC 5.0.0": _rust,
}


@pytest.mark.parametrize("name", _CLIENTS)
def test_the_features_of_a_client_are_those_of_the_table(name: str, tmp_path: Path) -> None:
    with _broker(tmp_path) as broker:
        found = _CLIENTS[name](broker, tmp_path)
    if os.environ.get("WRITE_TABLE_OF_CLIENTS"):
        _write(name, found)
    assert found == {feature: said for feature, said in _table()[name].items() if said != "-"}, (
        found
    )


def _table() -> dict[str, dict[str, str]]:
    """The table in the guide: by client and feature."""
    match = _TABLE.search(_GUIDE.read_text())
    assert match is not None
    head, _, *rows = [_cells(row) for row in match[2].splitlines()]
    return {client: {row[0]: row[at] for row in rows} for at, client in enumerate(head) if at}


def _cells(row: str) -> list[str]:
    return [each.strip() for each in row.strip("|").split("|")]


def _write(name: str, found: Found) -> None:
    table = {**_table(), name: dict(found)}
    rows = [
        ["", *_CLIENTS],
        ["---"] * (len(_CLIENTS) + 1),
        *(
            [feature, *(table.get(each, {}).get(feature, "-") for each in _CLIENTS)]
            for feature in _FEATURES
        ),
    ]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    guide = _GUIDE.read_text()
    _GUIDE.write_text(_TABLE.sub(lambda match: match[1] + text + match[3], guide))
