"""Produce and consume by RocketMQ's Java client: the same outcomes of both brokers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from lakelog_replication.address import Address
from tests.broker.later import java, lakelogs_broker, rocketmqs_broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
_SETTINGS: Final = {
    "enablePropertyFilter": "true",
    "defaultTopicQueueNums": 8,
    # the sizes that lakelog has by default
    "mappedFileSizeCommitLog": 1 << 26,
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Address]]:
    """The addresses of both brokers."""
    homes = {each: tmp_path_factory.mktemp(each) for each in ("lakelog", "rocketmq")}
    with (
        lakelogs_broker(homes["lakelog"]) as ours,
        rocketmqs_broker(homes["rocketmq"], **_SETTINGS) as theirs,
    ):
        yield {"lakelog": ours.server, "rocketmq": theirs.server}


@contextmanager
def outcomes(server: Address, home: Path) -> Iterator[dict[str, str]]:
    """The outcome of each scenario; the program runs while the context is entered."""
    found: dict[str, str] = {}
    with subprocess.Popen(
        java("Clients", str(server), home=home), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield found
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith('{"scenario"'):
                    each = json.loads(line)
                    found[each["scenario"]] = each["outcome"]
            assert process.wait() == 0
        finally:
            process.kill()


def test_java_clients_have_the_same_outcomes(servers: dict[str, Address], tmp_path: Path) -> None:
    with (
        outcomes(servers["lakelog"], tmp_path / "1") as ours,
        outcomes(servers["rocketmq"], tmp_path / "2") as theirs,
    ):
        pass  # both programs run at the same time
    assert len(theirs) > 40
    assert ours == theirs
