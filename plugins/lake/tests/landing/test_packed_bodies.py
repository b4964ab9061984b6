"""A body that is not what its flags say: no message is lost for it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from lakelog_lake.errors import CorruptBody
from lakelog_lake.landing.dispatcher import LandingSource
from lakelog_lake.landing.targets import TableSpec
from plugins.lake.tests.landing.table_specs import Even, land_spec, read_dead
from plugins.lake.tests.landing.tables import land_all, make, read
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import mislabelled

BODIES = [b'{"n": %d}' % number for number in range(5)]


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """The third of five bodies says wrongly that it is zlib's."""
    mislabelled(tmp_path / "store", BODIES, 2)
    return tmp_path / "store"


def test_it_ends_a_pass(store_path: Path, tmp_path: Path) -> None:
    sink = make("parquet", tmp_path / "t")
    with pytest.raises(CorruptBody, match="--corrupt skip"):
        land_all(LandingSource(store_path, "S"), sink)


def test_it_lands_as_it_is_stored(
    store_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = make("parquet", tmp_path / "t")
    with caplog.at_level(logging.WARNING):
        (landed,) = land_all(LandingSource(store_path, "S", skip_damage=True), sink)
    assert (landed.rows, landed.damaged) == (5, 0)
    assert read("parquet", tmp_path / "t")["body"].to_pylist() == BODIES
    assert "its row has the stored body" in caplog.text


@pytest.mark.parametrize("skip", [False, True])
def test_it_is_a_dead_letter_where_bodies_are_parsed(
    store_path: Path, tmp_path: Path, skip: bool
) -> None:
    source = LandingSource(store_path, "S", skip_damage=skip)
    spec = TableSpec(f"parquet:{tmp_path / 't'}", parsers={"t": Even()})
    (landed,) = land_spec(source, spec)
    assert (landed.rows, landed.dead_letters) == (5, 1)
    assert read("parquet", tmp_path / "t").num_rows == 4
    (dead,) = read_dead("parquet", tmp_path / "t").to_pylist()
    assert dead["body"] == BODIES[2]
    assert "is no ZLIB data" in dead["error"]
    assert "\n" not in dead["error"]


def test_a_step_of_nothing_else_is_no_trouble(tmp_path: Path) -> None:
    store_path = tmp_path / "store"
    mislabelled(store_path, BODIES[:1], 0)
    (landed,) = land_spec(
        LandingSource(store_path, "S"),
        TableSpec(f"parquet:{tmp_path / 't'}", parsers={"t": Even()}),
    )
    assert (landed.rows, landed.dead_letters) == (1, 1)


def test_one_of_a_topic_without_a_parser_ends_a_pass(store_path: Path, tmp_path: Path) -> None:
    spec = TableSpec(f"parquet:{tmp_path / 't'}", parsers={"other": Even()})
    with pytest.raises(CorruptBody):
        land_spec(LandingSource(store_path, "S"), spec)


def test_the_command_lands_verifies_and_exports_it(store_path: Path, tmp_path: Path) -> None:
    to, skip = f"parquet:{tmp_path / 't'}", ("--corrupt", "skip")
    assert run("dispatch", store_path, "--to", to, "--once", *skip).exit_code == 0
    equal = run("lake", "verify", store_path, "--to", to)
    assert equal.exit_code == 0, equal.stdout
    file = tmp_path / "all.jsonl"
    refused = run("export", store_path, "--to", file, "--format", "jsonl")
    assert refused.exit_code == 1
    assert "--corrupt skip" in refused.stderr
    assert run("export", store_path, "--to", file, "--format", "jsonl", *skip).exit_code == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["body"].encode() for row in rows] == BODIES
