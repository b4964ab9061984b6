"""Expressions over properties give the results of RocketMQ's own filter."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from lakelog.errors import SettingsError
from lakelog_queues.groups.property_filter import NoResult, PropertyFilter
from plugins.queues.tests.groups.expressions import EXPRESSIONS, PROPERTIES
from tests.takeover.test_groups import java

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


def result(text: str, properties: dict[str, str]) -> str:
    try:
        parsed = PropertyFilter(text)
    except SettingsError as error:
        return "more text" if "AND, OR or the end is expected" in str(error) else "invalid"
    try:
        found = parsed._evaluate(properties)
    except NoResult:
        return "error"
    return "null" if found is None else str(found).lower()


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_results_are_those_of_rocketmq(tmp_path: Path, count: int) -> None:
    asked: list[tuple[str, dict[str, str]]] = [("NOT (a <= 0)", {"a": "0.0"})]  # an error is rare

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(EXPRESSIONS, PROPERTIES)
    def collect(text: str, properties: dict[str, str]) -> None:
        asked.append((text, properties))

    collect()
    lines = [json.dumps({"expression": text, "properties": known}) for text, known in asked]
    done = subprocess.run(
        java("FilterResults", home=tmp_path),
        input="\n".join(lines),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    theirs = done.stdout.split()
    ours = [result(*each) for each in asked]
    assert len(theirs) == len(ours) >= count / 2
    assert ours.count("more text") < len(ours) / 20
    different = [
        (*each, one, other)
        for each, one, other in zip(asked, ours, theirs, strict=True)
        if one not in (other, "more text")  # which RocketMQ ignores
    ]
    assert different == []
    assert {*theirs} == {"invalid", "error", "null", "true", "false"}
