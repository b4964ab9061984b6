"""Iceberg, Delta and Parquet tables, and their stores, as others leave them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog_lake.errors import TableMaintenanceError
from lakelog_lake.maintenance.tables import expire
from lakelog_lake.maintenance.terms import RetentionTerms
from lakelog_lake.sinks.iceberg import sqlite_catalog
from lakelog_lake.tasks.engines import processes
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.delta_states import DELTA
from plugins.lake.tests.landing.iceberg_states import ICEBERG
from plugins.lake.tests.landing.lake_tables import LakeTables
from plugins.lake.tests.landing.parquet_states import PARQUET
from plugins.lake.tests.landing.tables import (
    TABLE,
    assert_exactly,
    in_folder,
    keys_of,
    land_all,
    make,
)

MOST_PROCESSES = 2
SAMPLE = 40
"""So many states of each format are tried by default; the others are slow."""
PAGE = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    """Tasks run in processes."""
    with processes(MOST_PROCESSES) as run:
        LakeTables.engine = staticmethod(run)
        yield


@pytest.mark.sample(SAMPLE)
class TestIceberg(LakeTables):
    kind = "iceberg"
    states = ICEBERG


@pytest.mark.sample(SAMPLE)
class TestDelta(LakeTables):
    kind = "delta"
    states = DELTA


@pytest.mark.sample(SAMPLE)
class TestParquet(LakeTables):
    kind = "parquet"
    states = PARQUET


def make_old(folder: Path) -> None:
    """So old that an expiry takes what it does not know for left over."""
    for each in in_folder(folder):
        os.utime(each, (0, 0))


@pytest.mark.parametrize("other", ["delta", "parquet", "iceberg"])
def test_an_expiry_spares_other_tables_below(
    other: str, source: LandingSource, tmp_path: Path
) -> None:
    """A vacuum would remove all files that the Delta table does not list."""
    path, below = tmp_path / "t", tmp_path / "t" / "deep" / "other"
    land_all(source, make("delta", path))
    land_all(source, make(other, tmp_path / "made"))
    expected = keys_of(source.path, "S")
    if other == "iceberg":
        shutil.copytree(tmp_path / "made", below)
    else:
        below.parent.mkdir()
        (tmp_path / "made").rename(below)
    make_old(path)
    before = in_folder(path)
    with pytest.raises(TableMaintenanceError, match="has another table in its folder"):
        expire(f"delta:{path}", None, RetentionTerms(0))
    assert in_folder(path) == before
    assert_exactly("delta", path, expected)


def test_an_expiry_spares_an_iceberg_table_that_was_renamed(
    source: LandingSource, tmp_path: Path
) -> None:
    """The table that gets the former name has another place."""
    path = tmp_path / "t"
    land_all(source, make("iceberg", path))
    sqlite_catalog(path).rename_table(TABLE, "lakelog.former")
    land_all(source, make("iceberg", path))
    make_old(path)
    expire(f"iceberg:{path}", None, RetentionTerms(0))
    for name in (TABLE, "lakelog.former"):
        found = sqlite_catalog(path).load_table(name).scan().to_arrow()
        assert found.num_rows == len(keys_of(source.path, "S"))


def test_the_page_names_tests_and_states() -> None:
    """Each row of "What happens to my table when …" has some."""
    rows = PAGE.read_text().partition("## What happens to my table")[2].partition("\n## ")[0]
    found = [row.split(" | ")[-1] for row in rows.splitlines() if row.startswith("| ")][2:]
    states = {each.name for each in (*ICEBERG, *DELTA, *PARQUET)}
    folders = [each / "tests" for each in PAGE.parents[1].iterdir()]
    files = [each for folder in folders for each in folder.rglob("*.py")]
    tests = set(re.findall(r"def (test_\w+)", "".join(each.read_text() for each in files)))
    known = states | tests | {each.name for each in files}
    for row in found:
        named = set(re.findall(r"`([\w.-]+)`", row))
        assert named, row
        assert named <= known, row


def test_each_state_is_tried_or_has_its_reason() -> None:
    """In each format, and 40 are tried in each."""
    for states in (ICEBERG, DELTA, PARQUET):
        names = [each.name for each in states]
        assert len(names) == len(set(names)) >= 40
        others = {each for each in {*ICEBERG, *DELTA, *PARQUET} if each.name not in names}
        assert [each.name for each in others if not each.only] == []
