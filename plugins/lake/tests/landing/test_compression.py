"""Data files are packed as asked for; by itself, bodies that do not shrink are left as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyarrow import parquet

from lakelog import Message
from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.table_specs import Even, land_spec
from plugins.lake.tests.landing.tables import files, keys_in, keys_of, read
from plugins.lake.tests.landing.test_cli import identity, run
from plugins.lake.tests.stores import open_small

Body = Callable[[int], bytes]


def text(number: int) -> bytes:
    return f'{{"number": {number}, "what": "an event like all others"}}'.encode() * 8


def noise(_: int) -> bytes:
    return os.urandom(300)


def filled(path: Path, body: Body, count: int = 200) -> Path:
    with open_small(path) as store:
        store.put_batch([Message("t", body(number), keys=["k"]) for number in range(count)])
    return path


def codecs(paths: Iterable[Path]) -> dict[str, set[str]]:
    """By column, with nested ones as Parquet names them."""
    found: dict[str, set[str]] = {}
    for path in paths:
        metadata = parquet.read_metadata(path)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                found.setdefault(chunk.path_in_schema, set()).add(chunk.compression)
    return found


@pytest.mark.parametrize(
    ("name", "codec"),
    [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("lz4", "LZ4"), ("none", "UNCOMPRESSED")],
)
def test_files_are_packed_as_asked_for(tmp_path: Path, name: str, codec: str) -> None:
    store, table = filled(tmp_path / "s", noise), tmp_path / "t"
    done = run("export", store, "--to", table, "--format", "delta", "--compression", name)
    assert done.exit_code == 0, done.output
    assert set().union(*codecs(files("delta", table)).values()) == {codec}
    assert keys_in(read("delta", table)) == keys_of(store, identity(store))


@pytest.mark.sample(1)
def test_bodies_are_packed_where_that_pays(kind: str, tmp_path: Path) -> None:
    """Each file is decided for itself: a topic's bodies say nothing of another one's."""
    store, table = filled(tmp_path / "s", text), tmp_path / "t"
    with open_small(store) as opened:
        opened.put_batch([Message("other", noise(number)) for number in range(200)])
    land_spec(LandingSource(store, "S"), TableSpec(f"{kind}:{table}"))
    assert keys_in(read(kind, table)) == keys_of(store, "S")
    seen = set()
    for path in files(kind, table):
        rows = parquet.read_table(path, partitioning=None)
        found = codecs([path])
        packed = len(rows["body"][0].as_py()) > 300
        assert found.pop("body") == {"ZSTD" if packed else "UNCOMPRESSED"}
        assert "properties.key_value.key" in found
        assert set().union(*found.values()) == {"ZSTD"}
        seen.add(packed)
    assert seen == {True, False}


def test_other_bodies_are_packed(tmp_path: Path) -> None:
    """Columns without bodies, and bodies that are text."""
    source = LandingSource(filled(tmp_path / "s", text), "S")
    for parser, name in ((Even(), "length"), (parser_for("string"), "body")):
        table = tmp_path / name
        land_spec(source, TableSpec(f"parquet:{table}", parsers={"*": parser}))
        found = codecs(files("parquet", table))
        assert found[name] == {"ZSTD"}
        assert ("body" in found) is (name == "body")
