"""Whoever reads the folder of a Parquet table reads the table, also after kills at every step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyarrow import dataset

from lakelog_lake.maintenance.tables import compact
from lakelog_lake.sinks.parquet import ParquetSink
from lakelog_lake.tables import data_files
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.killing import killed_at
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.program import Orders
from plugins.lake.tests.landing.tables import SMALL, assert_exactly, keys_of, land_all, make
from plugins.lake.tests.stores import filled

STEPS = (
    "inside",
    *(
        pytest.param(each, marks=pytest.mark.slow)
        for each in ("shown one", "planned", "written", "committed")
    ),
)


def by_duckdb(folder: Path) -> int:
    if not list(folder.glob("*.parquet")):
        return 0
    with duckdb.connect() as connection:
        query = f"SELECT count(*) FROM read_parquet('{folder}/**/*.parquet')"
        ((count,),) = connection.execute(query).fetchall()
    return int(count)


def by_arrow(folder: Path) -> int:
    return int(dataset.dataset(folder, format="parquet").count_rows())


def counted(table: Path) -> int:
    """What readers of the folder count; they agree."""
    found = by_duckdb(table / "data")
    assert by_arrow(table / "data") == found
    return found


def landed(store: Path, table: Path) -> int:
    """By the manifest; renames nothing."""
    position = ParquetSink(table).position("S")
    return 0 if position is None else len(keys_of(store, "S", position.end))


@pytest.fixture
def table(store_path: Path, tmp_path: Path) -> Path:
    """300 rows, in many files."""
    land_all(LandingSource(store_path, "S"), make("parquet", tmp_path / "t"))
    return tmp_path / "t"


@pytest.mark.parametrize("step", STEPS)
def test_after_a_kill_and_a_restart(step: str, tmp_path: Path) -> None:
    store, table = filled(tmp_path / "s", 900), tmp_path / "t"
    make("parquet", table)
    for number in (1, 2):
        assert runs.kill_at(Orders(store, "parquet", table, step, number))
        missing = landed(store, table) - counted(table)
        assert missing >= 0, "rows are seen that have not landed"
        assert missing == 0 or step in ("inside", "shown one"), step
        make("parquet", table)
        assert counted(table) == landed(store, table)
    land_all(LandingSource(store, "S"), make("parquet", table))
    assert counted(table) == 900
    assert_exactly("parquet", table, keys_of(store, "S"))


def test_the_rows_of_a_commit_are_seen_at_once(source: LandingSource, tmp_path: Path) -> None:
    landed = land(source, make("parquet", tmp_path / "t"), in_process, SMALL)
    assert landed is not None
    assert counted(tmp_path / "t") == landed.rows > 0


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_after_a_kill_in_a_compaction(store_path: Path, table: Path, renames: int) -> None:

    def step() -> None:
        compact(f"parquet:{table}", None, 1 << 20, None)

    assert killed_at(step, Path, "rename", renames)
    make("parquet", table)
    assert counted(table) == 300
    assert len(list((table / "data").glob("*.parquet"))) == 3
    assert_exactly("parquet", table, keys_of(store_path, "S"))


def test_what_earlier_versions_left_is_hidden(table: Path) -> None:
    """They wrote under the names of tables' files: whole ones, and empty ones."""
    one = sorted((table / "data").glob("*.parquet"))[0]
    shutil.copy(one, one.with_name("00-left.parquet"))
    (table / "data" / "00-empty.parquet").touch()
    make("parquet", table)
    assert counted(table) == 300


def test_a_version_that_came_meanwhile_is_shown(
    store_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that finishes an older version leaves what a newer one needs."""
    inner: Callable[..., bool] = data_files.only

    def late(*given: object) -> bool:
        monkeypatch.setattr(data_files, "only", inner)
        compact(f"parquet:{table}", None, 1 << 20, None)
        return inner(*given)

    (table / "data" / "00-empty.parquet").touch()
    monkeypatch.setattr(data_files, "only", late)
    make("parquet", table)
    assert counted(table) == 300
    assert_exactly("parquet", table, keys_of(store_path, "S"))


def test_a_reader_keeps_files_that_are_renamed(table: Path) -> None:
    files = ParquetSink(table).open_files()
    first = next(files)
    compact(f"parquet:{table}", None, 1 << 20, None)
    assert first.read(4) == b"PAR1"
    assert all(each.read(4) == b"PAR1" for each in files)
