"""What people do to a folder of Parquet files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from lakelog_lake.sinks.parquet import ParquetSink
from lakelog_testing.contracts.tables import STATES, TableState, TableWorld
from plugins.lake.tests.landing.lake_tables import (
    INSIDE,
    SHARED,
    cut,
    land_more,
    lose,
    marked_and_damaged,
    other_kind_inside,
    remove_dead_letters,
)
from plugins.lake.tests.landing.tables import files, keys_in


def manifests(world: TableWorld) -> list[Path]:
    return sorted((world.table / "_lakelog").glob("*.json"))


def data_file(world: TableWorld) -> Path:
    return min(files("parquet", world.table))


def remove_newest_manifest(world: TableWorld) -> None:
    land_more(world)
    manifests(world)[-1].unlink()


def bring_back(world: TableWorld) -> None:
    for each in world.folder.glob("*.json"):
        each.rename(world.table / "_lakelog" / each.name)


def on_manifest(number: int, act: Callable[[Path], object]) -> Callable[[TableWorld], None]:
    """Do it to the manifest at this place of the list of all."""

    def change(world: TableWorld) -> None:
        file = manifests(world)[number]
        shutil.copy(file, world.folder)
        act(file)

    return change


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(file: Path) -> None:
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return edit


def remove_an_entry(world: TableWorld) -> None:
    """As somebody deletes rows by hand; the file has no entry any more, and is removed."""
    newest = manifests(world)[-1]
    content = json.loads(newest.read_text())
    gone = content["files"].pop()
    newest.write_text(json.dumps(content))
    world.gone |= set(keys_in(parquet.read_table(world.table / gone["path"])))
    (world.table / gone["path"]).unlink()


def remove_manifests(world: TableWorld) -> None:
    (world.table / "_lakelog").rename(world.folder / "manifests")


def bring_manifests_back(world: TableWorld) -> None:
    (world.folder / "manifests").rename(world.table / "_lakelog")


def move_into_a_folder(file: Path) -> None:
    (file.parent / "older").mkdir()
    file.rename(file.parent / "older" / file.name)


def rewrite_files(
    world: TableWorld, change: Callable[[pa.Table], pa.Table] = lambda it: it
) -> None:
    """In place, by another writer."""
    for each in files("parquet", world.table):
        table = parquet.read_table(each, partitioning=None)
        parquet.write_table(change(table), each, compression="snappy", row_group_size=5)


def add_column(world: TableWorld) -> None:
    rewrite_files(world, lambda rows: rows.append_column("note", pa.array(["x"] * rows.num_rows)))


def copy_files(world: TableWorld) -> None:
    """As a file manager names copies; no reader counts their rows twice."""
    for each in files("parquet", world.table):
        shutil.copy(each, each.with_name(f"{each.stem} (copy).parquet"))


def foreign_file(world: TableWorld) -> None:
    """Of other columns; it gets a hidden name, as no version lists it."""
    parquet.write_table(pa.table({"id": [1, 2]}), world.table / "data" / "mine.parquet")


def foreign_folder(world: TableWorld) -> None:
    folder = world.table / "data" / "topic=x"
    folder.mkdir()
    parquet.write_table(pa.table({"id": [1, 2]}), folder / "part-0.parquet")
    world.kept = [folder]


def odd_names(world: TableWorld) -> None:
    for name in (b"\xff\xfe.parquet", b"a\nb.parquet", b"-rf.parquet"):
        Path(str(world.table / "data"), name.decode(errors="surrogateescape")).write_bytes(b"x")


def hide(world: TableWorld) -> None:
    """As after a kill between a commit and the renaming of its files."""
    file = data_file(world)
    file.rename(file.with_name(f".{file.name}.hidden"))


def files_beside_manifests(world: TableWorld) -> None:
    for name in ("notes.json", "0.json.bak", "left.tmp"):
        (world.table / "_lakelog" / name).write_text("{")
        world.kept.append(world.table / "_lakelog" / name)


def link_data(world: TableWorld) -> None:
    """The data are on another disk."""
    (world.table / "data").rename(world.folder / "disk")
    (world.table / "data").symlink_to(world.folder / "disk")


def link_manifests(world: TableWorld) -> None:
    (world.table / "_lakelog").rename(world.folder / "disk")
    (world.table / "_lakelog").symlink_to(world.folder / "disk")


def remove_empty_data(world: TableWorld) -> None:
    """A table without rows whose folder of data a backup left out, as it was empty."""
    shutil.rmtree(world.table)
    ParquetSink(world.table).prepare()
    (world.table / "data").rmdir()


OF_FILES: Final = "it has a log or a catalog of its own in place of manifests"
_NO_MANIFEST: Final = "is not a manifest of lakelog"


def of_files(name: str, what: str, act: Any, refused: str | None = None, **more: Any) -> TableState:
    return TableState(f"parquet-{name}", what, act, refused, only=OF_FILES, **more)


PARQUET: Final = [
    *STATES,
    *SHARED,
    TableState(*INSIDE, other_kind_inside("delta")),
    *marked_and_damaged(
        on_manifest(-1, edited(lambda found: found.update(topic="orders"))),
        bring_back,
        data_file,
        partial(remove_dead_letters, "parquet"),
    ),
    TableState(
        "newest-commit-removed",
        "removes what the newest commit wrote, as a restored backup of the metadata does",
        remove_newest_manifest,
    ),
    of_files(
        "older-manifest-removed",
        "removes an older manifest",
        on_manifest(0, Path.unlink),
        _NO_MANIFEST,
        remedy=bring_back,
    ),
    of_files(
        "manifests-removed",
        "removes all manifests",
        remove_manifests,
        "holds other files",
        remedy=bring_manifests_back,
    ),
    of_files(
        "manifest-cut",
        "cuts the newest manifest",
        on_manifest(-1, cut),
        _NO_MANIFEST,
        remedy=bring_back,
    ),
    of_files(
        "manifest-emptied",
        "empties the newest manifest",
        on_manifest(-1, lambda file: file.write_bytes(b"")),
        _NO_MANIFEST,
        remedy=bring_back,
    ),
    of_files(
        "manifest-newer",
        "lands by a later lakelog",
        on_manifest(-1, edited(lambda found: found.update(version=2))),
        "version 2, but lakelog reads 1",
        remedy=bring_back,
    ),
    of_files(
        "manifest-without-key",
        "removes a column of the key from the newest manifest",
        on_manifest(-1, edited(lambda found: found["columns"].pop("queue_offset"))),
        "queue_offset is missing",
        remedy=bring_back,
    ),
    of_files("entry-removed", "removes a file and its entry", remove_an_entry),
    of_files("files-beside-manifests", "leaves files beside manifests", files_beside_manifests),
    of_files(
        "file-moved",
        "moves a data file into a folder",
        lambda w: lose(w, data_file(w), move_into_a_folder),
    ),
    of_files("files-rewritten", "writes the files again", rewrite_files),
    of_files("column-added", "adds a column to the files", add_column),
    of_files("files-copied", "copies files beside themselves", copy_files),
    of_files("foreign-file", "puts a file of other columns beside them", foreign_file),
    of_files("foreign-folder", "puts a folder of other files beside them", foreign_folder),
    of_files("odd-names", "puts files of odd names beside them", odd_names),
    of_files("file-hidden", "gives a file its hidden name", hide),
    of_files("data-linked", "moves the files to another disk, and links them", link_data),
    of_files("manifests-linked", "moves the manifests, and links them", link_manifests),
    of_files(
        "empty-data-removed",
        "restores an empty table without its folder of files",
        remove_empty_data,
    ),
]
