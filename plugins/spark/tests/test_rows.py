"""The ranges of a plan give every record once, whatever state a log is in; without Spark."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import Message
from lakelog.format.layout import segment_name
from lakelog.format.sysflag import is_queued
from lakelog_lake.errors import CorruptLog, DurableEndUnknown
from lakelog_lake.log.columns import NAMES, store_name
from lakelog_lake.log.ends import READABLE
from lakelog_lake.reading.options import FLUSHED, ReadOptions
from lakelog_lake.reading.plan import LogRange, plan
from lakelog_lake.reading.rows import rows
from lakelog_queues.arrow import COLUMNS
from plugins.lake.tests.stores import (
    SEGMENT,
    expected_rows,
    filled,
    messages,
    open_small,
    overwrite,
)
from tests.support.fixtures import EXACT, StoreFixtures
from tests.support.fixtures import NAMES as FIXTURES

ALL = {"system_topics": "true", "decompress": "false"}


def read(
    path: Path, parts: list[LogRange] | None = None, corrupt: str = "fail"
) -> list[dict[str, Any]]:
    """All rows, as a driver and its executors would read them."""
    given = ReadOptions.of({**ALL, "path": str(path), "corrupt": corrupt})
    if parts is None:
        with lakelog.open(path, mode="read") as store:
            parts = plan(store, given)
    return [
        {**row, "properties": dict(row["properties"])}
        for part in parts
        for table in rows(given, store_name(path), part)
        for row in table.to_pylist()
    ]


def queued(path: Path) -> list[lakelog.StoredMessage]:
    with lakelog.open(path, mode="read") as store:
        return [each for each in store.scan(on_damage=lambda _: None) if is_queued(each.sys_flag)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of several segments."""
    return filled(tmp_path / "store", 300)


def test_the_columns_are_those_of_the_core_behind_the_store() -> None:
    assert NAMES[0] == "store"
    assert NAMES[1:] == COLUMNS


def test_all_columns_are_those_of_the_messages(store: Path) -> None:
    stored = queued(store)
    assert len(stored) == 300
    assert read(store) == expected_rows(stored, store_name(store))


@pytest.mark.sample(6)  # whose rows RocketMQ read as well: see test_fixture_rows.py
@pytest.mark.parametrize("name", FIXTURES)
def test_every_whole_record_of_a_real_directory_is_one_row(
    name: str, store_fixtures: StoreFixtures
) -> None:
    path = store_fixtures.get(name).store
    found = read(path, corrupt="fail" if name in EXACT else "skip")
    assert found == expected_rows(queued(path), "store")
    assert found


def test_a_store_is_named_by_its_uuid(store: Path) -> None:
    assert f'"{store_name(store)}"' in (store / "lakelog" / "store.json").read_text()


def test_what_comes_after_the_plan_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path) as made:
        made.put_batch(list(messages(100)))
        with lakelog.open(path, mode="read") as beside:
            parts = plan(beside, ReadOptions(path, until=READABLE))
        made.put_batch(list(messages(100)))
        assert len(read(path, parts)) == 100
    assert len(read(path)) == 200


def ends(path: Path, until: str | None) -> int:
    with lakelog.open(path, mode="read") as store:
        return plan(store, ReadOptions(path, until=until))[-1].end


def test_what_is_not_durable_is_no_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A power cut could take it back, and the table would hold what never was."""
    path = tmp_path / "store"
    with open_small(path, flush="none") as made:
        made.put_batch(list(messages(50)))
        durable = made.flush()
        end = made.put(Message("t", b"x")).end_offset
        assert ends(path, None) == ends(path, FLUSHED) == durable
        assert f"{end - durable} bytes are not durable yet" in caplog.text
        assert ends(path, READABLE) == end
    assert ends(path, None) == ends(path, FLUSHED) == end


def test_where_nobody_knows_what_is_durable(tmp_path: Path, store_fixtures: StoreFixtures) -> None:
    """RocketMQ publishes no positions: beside it, and after its crash, all that can be read."""
    crashed = store_fixtures.get("abnormal")
    assert (crashed.store / "abort").exists()
    assert ends(crashed.store, None) == ends(crashed.store, READABLE) > 0
    with pytest.raises(DurableEndUnknown, match="until=readable"):
        ends(crashed.store, FLUSHED)


def test_an_empty_store_has_no_range(tmp_path: Path) -> None:
    path = tmp_path / "store"
    open_small(path).close()
    assert read(path) == []


# --- damage ---


def test_damage_ends_the_read_with_its_place(store: Path) -> None:
    broken = queued(store)[100]
    overwrite(store, broken.physical_offset + 10, bytes(20))
    with pytest.raises(CorruptLog, match="corrupt=skip") as caught:
        read(store)
    assert caught.value.damage.offset == broken.physical_offset
    assert segment_name(broken.physical_offset // SEGMENT * SEGMENT) in str(caught.value)


def test_damage_is_skipped_and_said(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = read(store)
    place = whole[100]["physical_offset"]
    overwrite(store, place + 10, bytes(20))
    with caplog.at_level(logging.WARNING, "lakelog_lake"):
        assert read(store, corrupt="skip") == whole[:100] + whole[101:]
    assert f"skipped {place} to {whole[101]['physical_offset']}" in caplog.text


def zeros_at_the_end(path: Path) -> None:
    overwrite(path, SEGMENT + SEGMENT // 2, bytes(SEGMENT // 2))


def a_segment_gone(path: Path) -> None:
    (path / "commitlog" / segment_name(SEGMENT)).unlink()


def a_segment_cut(path: Path) -> None:
    os.truncate(path / "commitlog" / segment_name(SEGMENT), SEGMENT // 2)


@pytest.mark.parametrize("damage", [zeros_at_the_end, a_segment_gone, a_segment_cut])
def test_zeros_or_nothing_inside_of_the_log_is_damage(store: Path, damage: Any) -> None:
    with lakelog.open(store, mode="read") as opened:
        parts = plan(opened, ReadOptions(store))
    damage(store)
    with pytest.raises(CorruptLog):
        read(store, parts)
    assert read(store, parts, corrupt="skip") == expected_rows(queued(store), store_name(store))
