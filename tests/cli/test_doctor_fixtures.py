"""`lakelog doctor` foresees what the real RocketMQ store made of each directory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.commands import invoke
from tests.support.fixtures import NAMES, StoreFixture, StoreFixtures


def _doctor(fixture: StoreFixture) -> dict[str, Any]:
    conf = fixture.folder / "options"
    done = invoke("doctor", fixture.store, "--broker-conf", conf, "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (1 if document["findings"] else 0)
    return document


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", NAMES)
def test_what_rocketmq_would_do(name: str, store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get(name)
    real = fixture.expected["store"][0]
    document = _doctor(fixture)
    foreseen = document["rocketmq"]
    assert document["written_by"] == "rocketmq"
    assert document["is_clean_stop"] != real["abortFilePresent"]
    assert ("would not start" in foreseen) != real["loaded"]
    if not real["loaded"]:
        return
    cut = real["maxPhyOffset"] < document["end_offset"]
    assert (f"would cut the log at {real['maxPhyOffset']}," in foreseen) == cut


def test_a_damaged_directory_names_its_remedy(store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get("corrupt_clean_late")
    document = _doctor(fixture)
    assert document["damaged_places"] == 1
    assert document["next"] == [f"lakelog repair {fixture.store}"]
