"""RocketMQ's Go and Node clients of the gRPC protocol against lakelog and the proxy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import pytest

import lakelog
from lakelog_broker.settings import BrokerSettings
from plugins.broker.tests.serving import served
from tests.broker.grpcclient import go_outcomes, node_outcomes
from tests.broker.grpcserving import configure, proxy

pytestmark = pytest.mark.timeout(600)

_Client: TypeAlias = Callable[[str, Path], dict[str, str]]

_BOTH: Final = {
    "tags": " ".join(f"m{n:02}" for n in range(1, 20, 2)),
    "properties": "m17 m18 m19",
    "changed": "once more, attempt 2, keys [a b], tag late, p ü",
    "ordered": " ".join(map(str, range(20))),
    "delayed": "later, early false",
    "transactions": "committed left open, checked true",
    "a topic of a bad name": "was refused",
    "end": "reached",
}
_PUSHED: Final = {"push consumer": "20, m03 at attempt 2", "pushed in order": _BOTH["ordered"]}
_CLIENTS: Final = [
    pytest.param(go_outcomes, _BOTH, id="go"),
    pytest.param(node_outcomes, {**_BOTH, **_PUSHED}, id="node"),
]


@pytest.mark.parametrize(("client", "expected"), _CLIENTS)
def test_outcomes_at_lakelog(tmp_path: Path, client: _Client, expected: dict[str, str]) -> None:
    configure(tmp_path / "store")
    settings = BrokerSettings(
        port=0, grpc_port=0, transaction_timeout_s=1, transaction_check_interval_s=1
    )
    with (
        lakelog.open(tmp_path / "store", mode="exclusive") as store,
        served(store, settings) as broker,
    ):
        assert client(broker.grpc_address, tmp_path) == expected


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize(("client", "expected"), _CLIENTS)
def test_outcomes_at_the_proxy(tmp_path: Path, client: _Client, expected: dict[str, str]) -> None:
    configure(tmp_path / "home" / "store")
    with proxy(tmp_path) as endpoint:
        assert client(endpoint, tmp_path) == expected
