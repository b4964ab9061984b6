"""Data files are packed as asked for; by itself, bodies that do not shrink are left as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import lakelog
from lakelog import Message
from lakelog.errors import SettingsError
from lakelog_lake.bodies import parser_for
from lakelog_lake.landing.dispatcher import LandingSource
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.tables.parquet_writer import ParquetCompression, shrinks
from plugins.lake.tests.landing.table_specs import Even, land_spec
from plugins.lake.tests.landing.tables import files, keys_in, keys_of, read
from plugins.lake.tests.landing.test_cli import identity, run
from plugins.lake.tests.stores import open_small

OTHERS = {"ZSTD"}
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


def land(
    kind: str, store: Path, table: Path, compression: ParquetCompression
) -> dict[str, set[str]]:
    land_spec(LandingSource(store, "S"), TableSpec(f"{kind}:{table}", compression=compression))
    assert keys_in(read(kind, table)) == keys_of(store, "S")
    return codecs(files(kind, table))


@pytest.mark.sample(2)
@pytest.mark.parametrize(("body", "packed"), [(text, {"ZSTD"}), (noise, {"UNCOMPRESSED"})])
def test_bodies_are_packed_where_that_pays(
    kind: str, tmp_path: Path, body: Body, packed: set[str]
) -> None:
    found = land(kind, filled(tmp_path / "s", body), tmp_path / "t", ParquetCompression.AUTO)
    assert found.pop("body") == packed
    assert "properties.key_value.key" in found
    assert set().union(*found.values()) == OTHERS


@pytest.mark.parametrize(
    ("name", "codec"),
    [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("lz4", "LZ4"), ("none", "UNCOMPRESSED")],
)
@pytest.mark.parametrize("command", ["dispatch", "export"])
def test_files_are_packed_as_asked_for(tmp_path: Path, command: str, name: str, codec: str) -> None:
    store, table = filled(tmp_path / "s", noise), tmp_path / "t"
    to = (f"delta:{table}", "--once") if command == "dispatch" else (table, "--format", "delta")
    done = run(command, store, "--to", *to, "--compression", name)
    assert done.exit_code == 0, done.output
    assert set().union(*codecs(files("delta", table)).values()) == {codec}
    assert keys_in(read("delta", table)) == keys_of(store, identity(store))


def test_each_file_is_decided_for_itself(tmp_path: Path) -> None:
    """A topic's bodies say nothing of another one's."""
    store, table = filled(tmp_path / "s", text), tmp_path / "t"
    with open_small(store) as opened:
        opened.put_batch([Message("other", noise(number)) for number in range(200)])
    land("parquet", store, table, ParquetCompression.AUTO)
    for topic, codec in {"t": "ZSTD", "other": "UNCOMPRESSED"}.items():
        of_topic = [each for each in files("parquet", table) if topic_of(each) == topic]
        assert codecs(of_topic)["body"] == {codec}


def topic_of(path: Path) -> str:
    return str(parquet.read_table(path, columns=["topic"], partitioning=None)["topic"][0])


def test_tables_without_bodies_are_packed(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", noise)
    land_spec(
        LandingSource(store, "S"), TableSpec(f"parquet:{tmp_path / 't'}", parsers={"*": Even()})
    )
    found = codecs(files("parquet", tmp_path / "t"))
    assert "body" not in found
    assert set().union(*found.values()) == OTHERS
    with lakelog.open(store, mode="read") as opened:
        assert read("parquet", tmp_path / "t").num_rows == sum(1 for _ in opened.scan())


def test_bodies_that_are_text_are_packed(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", text)
    spec = TableSpec(f"parquet:{tmp_path / 't'}", parsers={"*": parser_for("string")})
    land_spec(LandingSource(store, "S"), spec)
    assert codecs(files("parquet", tmp_path / "t"))["body"] == {"ZSTD"}


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([], True),
        ([b""] * 10, True),
        ([b"a" * (4 << 20)], True),
        ([os.urandom(4 << 20)], False),
        ([os.urandom(4)], True),
        ([b'{"a": %d}' % number for number in range(100_000)], True),
        ([os.urandom(1000), *[b"b" * 1000] * 200], True),
    ],
)
def test_what_shrinks(bodies: list[bytes], expected: bool) -> None:
    assert shrinks(pa.array(bodies, pa.binary())) is expected
    sliced = pa.array([b"x" * 9000, *bodies], pa.binary()).slice(1)
    assert shrinks(sliced) is expected


def test_another_name_is_refused() -> None:
    assert ParquetCompression.of("lz4") is ParquetCompression.LZ4
    with pytest.raises(SettingsError, match="'gzip' is not one of auto, zstd, snappy, lz4, none"):
        ParquetCompression.of("gzip")
