"""A kind of table that another package brings: lakelog finds it by an entry point."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
from pyarrow import parquet

from lakelog_lake.errors import Conflict
from lakelog_lake.sinks.base import Head
from lakelog_lake.sinks.locations import TableLocation
from lakelog_lake.tables.data_files import FileFacts
from lakelog_lake.tables.position import Position, from_text, to_text
from lakelog_lake.tables.settings import Resume
from lakelog_lake.tables.shape import Layout, TableShape
from plugins.lake.tests.landing.tables import keys_in, keys_of
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import filled

# --- the package: a table is a folder with one JSON file for each version ---


@attrs.frozen
class ListedSink:
    """A table whose versions ``N.json`` list its files, and the positions of all stores."""

    path: Path
    shape: TableShape

    @property
    def name(self) -> str:
        return f"the listed table {self.path}"

    @property
    def folder(self) -> Path:
        return self.path / "data"

    @property
    def layout(self) -> Layout:
        return Layout(self.shape.stored(), self.shape.partition)

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def marked(self) -> str | None:
        return None

    def _newest(self) -> tuple[int, dict[str, Any]]:
        number = len(list(self.path.glob("*.json")))
        if not number:
            return 0, {"files": [], "positions": {}}
        return number, json.loads((self.path / f"{number}.json").read_text())

    def head(self, store: str, resume: Resume | None = None) -> Head:
        number, content = self._newest()
        text = content["positions"].get(store)
        return Head(None if text is None else from_text(text), (number, content))

    def commit(
        self, head: Head, store: str, files: Sequence[FileFacts], position: Position
    ) -> None:
        number, content = head.version
        content = {
            "files": [*content["files"], *(each.path for each in files)],
            "positions": {**content["positions"], store: to_text(position)},
        }
        try:
            with (self.path / f"{number + 1}.json").open("x") as file:
                json.dump(content, file)
        except FileExistsError as error:
            raise Conflict(f"{self.name} was changed by another writer") from error


@attrs.frozen
class ListedLocation(TableLocation):
    """One folder for each table."""

    kind: ClassVar[str] = "listed"
    names_are_paths: ClassVar[bool] = True
    path: Path

    @property
    def text(self) -> str:
        return f"listed:{self.path}"

    def table(self, given: str | None) -> str:  # a folder needs no other name
        return str(self.path)

    def sink(self, name: str, shape: TableShape) -> ListedSink:
        return ListedSink(Path(name), shape)

    def beside(self, name: str) -> list[str]:
        return [each.name for each in Path(name).parent.iterdir()]


def location(place: str, storage: Mapping[str, str]) -> ListedLocation:
    assert not storage
    return ListedLocation(Path(place).absolute())


# --- the tests ---


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's metadata, as pip writes them."""
    info = tmp_path / "site" / "acme_listed-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-listed\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[lakelog_lake.formats]\nlisted = {__name__}:location\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(info.parent)])


@pytest.mark.usefixtures("installed")
def test_messages_land_in_it_each_once(tmp_path: Path) -> None:
    store, to = filled(tmp_path / "store", 300), f"listed:{tmp_path / 't'}"
    for count in (300, 310):
        assert run("dispatch", store, "--to", to, "--once", "--store-id", "S").exit_code == 0
        newest = max((tmp_path / "t").glob("*.json"), key=lambda path: int(path.stem))
        files = json.loads(newest.read_text())["files"]
        rows = [each for file in files for each in keys_in(parquet.read_table(file))]
        assert sorted(rows) == keys_of(store, "S")
        assert len(rows) == count
        filled(store, 10)
    refused = run("lake", "status", store, "--to", to)
    assert refused.exit_code == 2
    assert "can be read and maintained by its own tools" in refused.stderr


@pytest.mark.usefixtures("installed")
def test_an_unknown_kind_names_it_as_well(tmp_path: Path) -> None:
    done = run("dispatch", filled(tmp_path / "store", 1), "--to", "csv:t", "--once")
    assert done.exit_code == 2
    assert "with one of iceberg, delta, parquet, catalog, listed" in done.stderr
