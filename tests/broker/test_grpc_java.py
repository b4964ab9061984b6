"""RocketMQ's Java client of the gRPC protocol: the same program against lakelog and the proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog_broker.settings import BrokerSettings
from plugins.broker.tests.serving import served
from tests.broker.grpcclient import java_outcomes
from tests.broker.grpcserving import configure, proxy

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

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


@pytest.mark.parametrize("security", ["ssl", "plain"])
def test_outcomes_at_lakelog(tmp_path: Path, security: str) -> None:
    configure(tmp_path / "store")
    with (
        lakelog.open(tmp_path / "store", mode="exclusive") as store,
        served(store, BrokerSettings(port=0, grpc_port=0)) as broker,
    ):
        assert java_outcomes(broker.grpc_address, security, tmp_path) == EXPECTED


@pytest.mark.slow
def test_outcomes_at_the_proxy(tmp_path: Path) -> None:
    configure(tmp_path / "home" / "store")
    with proxy(tmp_path) as endpoint:
        assert java_outcomes(endpoint, "ssl", tmp_path) == EXPECTED
