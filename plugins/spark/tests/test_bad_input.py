"""What goes wrong outside of lakelog: one line that says what, where, and what to do; no traceback.

The commands run here as in a shell. A full disk is in ``landing/test_full_warehouse.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import lakelog
from lakelog.errors import LakelogError
from lakelog_lake.errors import Unreachable
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_spark.catalog import SparkCatalogLocation
from plugins.lake.tests.landing.tables import any_kind, read
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import SEGMENT, filled
from plugins.spark.tests.reading import offsets, reader, rows_of
from plugins.spark.tests.reading import read as read_rows
from plugins.spark.tests.test_streaming import drop_front, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 200


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "store", COUNT)


UNREACHABLE: Final = 4
"""The exit code of a table that cannot be reached, or refuses a commit: no commit was made."""


def refused(*arguments: object, codes: Collection[int] = (1, 2, 3)) -> str:
    """What a command says that ends by an error: one line."""
    done = run(*arguments)
    assert done.exit_code in codes, (done.exit_code, done.exception, done.stderr)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    (line,) = done.stderr.splitlines()
    assert line.startswith("lakelog: ")
    return str(line)


def dispatch(store: Path, to: str, *more: object) -> tuple[object, ...]:
    return ("dispatch", store, "--to", to, "--once", *more)


def test_a_catalog_that_lost_its_table(store: Path, tmp_path: Path) -> None:
    to = f"iceberg:{tmp_path / 'lake'}"
    assert run(*dispatch(store, to)).exit_code == 0
    for each in (tmp_path / "lake").rglob("*.metadata.json"):
        each.unlink()
    said = refused(*dispatch(store, to), codes=[UNREACHABLE])
    assert "cannot be read or written" in said
    assert ".metadata.json" in said


def test_a_place_that_can_be_no_folder(kind: str, store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("somebody's")
    for place in (tmp_path / "file", tmp_path / "file" / "t"):
        said = refused(*dispatch(store, f"{kind}:{place}"), codes=[UNREACHABLE])
        assert str(place) in said
        assert (tmp_path / "file").read_text() == "somebody's"


def test_a_broken_delta_table(store: Path, tmp_path: Path) -> None:
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{garbage")
    said = refused(*dispatch(store, f"delta:{tmp_path / 't'}"), codes=[UNREACHABLE])
    assert "Json error" in said


def gone(store: Path) -> None:
    shutil.rmtree(store)


def emptied(store: Path) -> None:
    shutil.rmtree(store / "commitlog")


removals = pytest.mark.parametrize("remove", [gone, emptied])


@removals
def test_a_store_deleted_within_a_read(store: Path, remove: Callable[[Path], None]) -> None:
    """What was read is whole, and the rest is an error."""
    expected = offsets(read_rows(store))
    made = reader(store, max_partition_bytes="8k")
    found: list[int] = []

    def read_and_remove() -> None:
        for part in made.partitions():
            for table in made.read(part):
                found.extend(table.column("physical_offset").to_pylist())
                if (store / "commitlog").exists():
                    remove(store)

    with pytest.raises(LakelogError, match=str(store)):
        read_and_remove()
    assert found
    assert found == expected[: len(found)]


@removals
def test_a_store_deleted_under_a_stream(store: Path, remove: Callable[[Path], None]) -> None:
    made = stream(store)
    start, end = made.initialOffset(), made.latestOffset()
    parts = made.partitions(start, end)
    assert parts
    remove(store)
    with pytest.raises(LakelogError, match=str(store)):
        rows_of(made, parts)
    if remove is gone:
        with pytest.raises(LakelogError, match=str(store)):
            made.latestOffset()


@removals
def test_a_store_deleted_within_a_task(
    store: Path, tmp_path: Path, remove: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakelog_lake.tasks import engines

    write: Any = vars(engines)["write"]

    def late(task: Any, *kept: Any) -> Any:
        if (store / "commitlog").exists():
            remove(store)
        return write(task, *kept)

    monkeypatch.setattr(engines, "write", late)
    assert str(store) in refused(*dispatch(store, f"parquet:{tmp_path / 't'}"))
    assert read("parquet", tmp_path / "t").num_rows == 0


@any_kind
def test_an_offset_that_is_gone(kind: str, store: Path, tmp_path: Path) -> None:
    to = f"{kind}:{tmp_path / 't'}"
    with lakelog.open(store, mode="read") as opened:
        first = opened.max_offset
    assert run(*dispatch(store, to)).exit_code == 0
    filled(store, COUNT)
    minimum = drop_front(store, 2 + first // SEGMENT)
    said = refused(*dispatch(store, to))
    assert f"the log begins at offset {minimum}" in said
    assert f"{minimum - first} bytes between were deleted before they landed" in said
    assert "--gaps accept" in said
    assert run(*dispatch(store, to, "--gaps", "accept")).exit_code == 0


def test_a_catalog_of_spark_that_nobody_serves(spark: SparkSession) -> None:
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest"}
    settings[".uri"] = "http://127.0.0.1:9"
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.nowhere{name}", value)
    spec = TableSpec("spark:nowhere", "a.messages")
    said = r"spark:nowhere, table a\.messages, cannot be read or written"
    with pytest.raises(Unreachable, match=said) as caught:
        targets_for(spec, SparkCatalogLocation(spark, "nowhere"))
    assert "\n" not in str(caught.value)
