"""Bodies as columns, and what does not parse among the dead letters, exactly once each."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import attrs
import pytest

from lakelog.errors import SettingsError
from lakelog_lake.errors import CorruptBody
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.table_specs import (
    Even,
    assert_parsed,
    dispatcher,
    land_spec,
    lengths,
    read_dead,
    stop_at,
)
from plugins.lake.tests.landing.tables import any_kind, land_all, make, read
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import mislabelled


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


@pytest.mark.parametrize("number", [1, 2])
@any_kind
def test_a_kill_between_a_table_and_its_dead_letters(
    kind: str, source: LandingSource, tmp_path: Path, number: int
) -> None:
    """A new table of dead letters begins where the table is."""
    spec = TableSpec(f"{kind}:{tmp_path / 't'}", parsers={"*": Even()})
    stop_at(dispatcher(source, spec), "one committed", number)
    land_spec(source, spec)
    assert_parsed(read(kind, tmp_path / "t"), read_dead(kind, tmp_path / "t"), source.path, None)
    name = "lakelog.again" if kind == "iceberg" else str(tmp_path / "again")
    assert land_spec(source, attrs.evolve(spec, dead_letters=name)) == []


def test_columns_with_taken_names_are_refused(store_path: Path, tmp_path: Path) -> None:
    for name in ("topic", "day", "error"):
        with pytest.raises(SettingsError, match="has the name of another column"):
            land_spec(
                LandingSource(store_path, "S"),
                TableSpec(f"parquet:{tmp_path / 't'}", parsers={"*": Even(name)}),
            )


# --- a body that is not what its flags say: no message is lost for it ---

BODIES = [b'{"n": %d}' % number for number in range(5)]


@pytest.fixture
def mislabelled_store(tmp_path: Path) -> Path:
    """The third of five bodies says wrongly that it is zlib's."""
    mislabelled(tmp_path / "wrong", BODIES, 2)
    return tmp_path / "wrong"


def test_a_mislabelled_body_lands_as_it_is_stored(
    mislabelled_store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = make("parquet", tmp_path / "t")
    with pytest.raises(CorruptBody, match="--corrupt skip"):
        land_all(LandingSource(mislabelled_store, "S"), sink)
    with caplog.at_level(logging.WARNING):
        (landed,) = land_all(LandingSource(mislabelled_store, "S", skip_damage=True), sink)
    assert (landed.rows, landed.damaged) == (5, 0)
    assert read("parquet", tmp_path / "t")["body"].to_pylist() == BODIES
    assert "its row has the stored body" in caplog.text


def test_a_mislabelled_body_is_a_dead_letter_where_bodies_are_parsed(
    mislabelled_store: Path, tmp_path: Path
) -> None:
    """One of a topic without a parser ends a pass."""
    source = LandingSource(mislabelled_store, "S")
    with pytest.raises(CorruptBody):
        land_spec(source, TableSpec(f"parquet:{tmp_path / 'u'}", parsers={"other": Even()}))
    spec = TableSpec(f"parquet:{tmp_path / 't'}", parsers={"t": Even()})
    (landed,) = land_spec(source, spec)
    assert (landed.rows, landed.dead_letters) == (5, 1)
    assert read("parquet", tmp_path / "t").num_rows == 4
    (dead,) = read_dead("parquet", tmp_path / "t").to_pylist()
    assert dead["body"] == BODIES[2]
    assert "is no ZLIB data" in dead["error"]
    assert "\n" not in dead["error"]


def test_the_command_lands_verifies_and_exports_a_mislabelled_body(
    mislabelled_store: Path, tmp_path: Path
) -> None:
    to, skip = f"parquet:{tmp_path / 't'}", ("--corrupt", "skip")
    assert run("dispatch", mislabelled_store, "--to", to, "--once", *skip).exit_code == 0
    equal = run("lake", "verify", mislabelled_store, "--to", to)
    assert equal.exit_code == 0, equal.stdout
    file = tmp_path / "all.jsonl"
    refused = run("export", mislabelled_store, "--to", file, "--format", "jsonl")
    assert refused.exit_code == 1
    assert "--corrupt skip" in refused.stderr
    assert run("export", mislabelled_store, "--to", file, "--format", "jsonl", *skip).exit_code == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["body"].encode() for row in rows] == BODIES
