"""Directories that RocketMQ wrote land in every kind of table, and read back equal."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

import lakelog
from lakelog.format.layout import COMPRESSED, is_queued
from lakelog_lake.log.wanted import Chosen
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.tables import land_all, make, read
from plugins.lake.tests.stores import expected_rows
from tests.support.fixtures import StoreFixtures

LARGER = TaskLimits(pass_bytes=256 << 10, task_bytes=64 << 10)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["basic", "real_broker", "real_broker_crash", "edge8", "lmq"])
def test_what_rocketmq_wrote_lands(
    kind: str, name: str, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    store = store_fixtures.copy(name, tmp_path).store
    source = LandingSource(store, "S", chosen=Chosen(system_topics=True), skip_damage=True)
    land_all(source, make(kind, tmp_path / "t"), LARGER)
    with lakelog.open(store, mode="read") as opened:
        stored = [each for each in opened.scan() if is_queued(each.sys_flag)]
    expected = {row["physical_offset"]: row for row in expected_rows(stored, "S")}
    rows = {row["physical_offset"]: row for row in read(kind, tmp_path / "t").to_pylist()}
    assert rows.keys() == expected.keys()
    for place, row in rows.items():
        row["properties"] = dict(row["properties"])
        row.pop("day", None)
        stored_body = expected[place]["body"]
        if row["sys_flag"] & COMPRESSED:  # Java's default is zlib
            expected[place]["body"] = zlib.decompress(stored_body)
        assert row == expected[place]
    assert len(rows) > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["basic", "real_broker"])
def test_the_rows_are_what_the_real_store_read(
    kind: str, name: str, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    """Against the dump that the Java store made of itself."""
    fixture = store_fixtures.copy(name, tmp_path)
    source = LandingSource(fixture.store, "S", chosen=Chosen(system_topics=True))
    land_all(source, make(kind, tmp_path / "t"), LARGER)
    expected = {
        (each["topic"], each["queueId"], each["queueOffset"], each["physOffset"], each["flag"])
        for each in fixture.expected["msg"]
    }
    found = read(kind, tmp_path / "t")
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "flag")
    rows = list(zip(*(found[each].to_pylist() for each in names), strict=True))
    assert len(rows) == len(set(rows))
    assert set(rows) == expected
