"""Every way of the Java client to send and to consume: the same outcomes with both brokers."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.broker.later import BROKERS, java_command

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
SCENARIOS = {
    *("sends", "members", "orderly", "broadcast", "litePull", "pull", "tags", "filters"),
    *("retries", "lookUps", "goesOn", "refusals"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The outcome of each scenario, by broker."""
    found = {}
    for name, serving in BROKERS.items():
        home = tmp_path_factory.mktemp(name)
        with serving(home) as broker:
            command = [*java_command("Traffic", home), str(broker.server), "Traffic"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found[name] = {each["scenario"]: each["outcome"] for each in lines}
    return found


def test_all_scenarios_ran(outcomes: dict[str, dict[str, str]]) -> None:
    assert outcomes["lakelog"].keys() == outcomes["rocketmq"].keys() == SCENARIOS


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_both_brokers_have_the_same_outcome(
    scenario: str, outcomes: dict[str, dict[str, str]]
) -> None:
    assert outcomes["lakelog"][scenario] == outcomes["rocketmq"][scenario]


def test_nothing_sent_is_lost_or_doubled(outcomes: dict[str, dict[str, str]]) -> None:
    for each in outcomes.values():
        assert "141 sent, lost [], more [], handed out 141" in each["sends"]
