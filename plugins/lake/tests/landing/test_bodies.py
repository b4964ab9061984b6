"""Bodies as columns, and what does not parse among the dead letters, exactly once each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.errors import SettingsError
from lakelog_lake.landing.dispatcher import LandingSource
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.log.range_reader import LogSpan
from plugins.lake.tests.landing.table_specs import (
    Even,
    assert_parsed,
    dispatcher,
    keys_by_topic,
    land_spec,
    lengths,
    per_topic,
    read_dead,
    read_topic,
    stop_at,
)
from plugins.lake.tests.landing.tables import any_kind, keys_of, read


@pytest.mark.sample(1)
def test_bodies_of_all_topics_in_one_table(kind: str, store_path: Path, tmp_path: Path) -> None:
    spec = TableSpec(f"{kind}:{tmp_path / 't'}", parsers={"*": Even()})
    passes = land_spec(LandingSource(store_path, "S"), spec)
    good, bad = read(kind, tmp_path / "t"), read_dead(kind, tmp_path / "t")
    assert "body" not in good.column_names
    assert_parsed(good, bad, store_path, None)
    assert sum(each.rows for each in passes) == 300
    assert sum(each.dead_letters for each in passes) == bad.num_rows > 0


@any_kind
def test_bodies_of_one_topic_beside_others(kind: str, store_path: Path, tmp_path: Path) -> None:
    spec = TableSpec(f"{kind}:{tmp_path / 't'}", parsers={"topic-1": Even()})
    land_spec(LandingSource(store_path, "S"), spec)
    found = read(kind, tmp_path / "t")
    rows = {each["physical_offset"]: each for each in found.to_pylist()}
    for offset, length in lengths(store_path).items():
        row: dict[str, Any] | None = rows.get(offset)
        if row is None:
            assert length % 2
        elif row["topic"] == "topic-1":
            assert (row["length"], row["body"]) == (length, None)
        else:
            assert (row["length"], len(row["body"])) == (None, length)
    assert set(read_dead(kind, tmp_path / "t")["topic"].to_pylist()) == {"topic-1"}
    assert len(rows) + read_dead(kind, tmp_path / "t").num_rows == 300


@any_kind
def test_a_table_and_dead_letters_for_each_topic(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    spec = per_topic(kind, tmp_path / "t", {"*": Even()})
    land_spec(LandingSource(store_path, "S"), spec)
    for topic in keys_by_topic(keys_of(store_path, "S")):
        good = read_topic(kind, tmp_path / "t", topic)
        bad = read_topic(kind, tmp_path / "t", topic, "_dead_letters")
        assert_parsed(good, bad, store_path, topic)


@pytest.mark.parametrize("number", [1, 2])
@any_kind
def test_a_kill_between_a_table_and_its_dead_letters(
    kind: str, store_path: Path, tmp_path: Path, number: int
) -> None:
    source = LandingSource(store_path, "S")
    spec = TableSpec(f"{kind}:{tmp_path / 't'}", parsers={"*": Even()})

    stop_at(dispatcher(source, spec), "one committed", number)
    land_spec(source, spec)
    assert_parsed(read(kind, tmp_path / "t"), read_dead(kind, tmp_path / "t"), store_path, None)


@any_kind
def test_dead_letters_that_are_behind_get_what_they_lack(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    """The commit of the dead letters is lost; that of the table was done."""
    source = LandingSource(store_path, "S")
    spec = TableSpec(f"{kind}:{tmp_path / 't'}", parsers={"*": Even()})
    land_spec(source, spec)
    elsewhere = tmp_path / "other"
    name = "lakelog.again" if kind == "iceberg" else str(elsewhere)
    again = TableSpec(spec.to, parsers=spec.parsers, dead_letters=name)
    passes = land_spec(source, again)
    assert passes == []  # a new table of dead letters begins where the table is
    with lakelog.open(store_path, mode="read") as store:
        half = sorted(each.physical_offset for each in store.scan())[150]
    lander = dispatcher(source, again)
    lander.one_pass()
    dead, main = lander.targets.served
    dead.start = half
    task = lander._tasks([LogSpan(0, main.start)])[0]
    from lakelog_lake.tasks.task import write

    written = write(task)
    assert written.parts[1].files == ()
    expected = [at for at, length in lengths(store_path).items() if length % 2 and at >= half]
    assert written.parts[0].rows == len(expected)


def test_columns_with_taken_names_are_refused(store_path: Path, tmp_path: Path) -> None:
    for name in ("topic", "day", "error"):
        with pytest.raises(SettingsError, match="has the name of another column"):
            land_spec(
                LandingSource(store_path, "S"),
                TableSpec(f"parquet:{tmp_path / 't'}", parsers={"*": Even(name)}),
            )
