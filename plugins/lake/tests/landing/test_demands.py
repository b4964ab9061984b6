"""What a table demands of its writers: it is done, or refused by name before the first file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from pyiceberg.types import NestedField

from lakelog import Message
from lakelog_lake.errors import (
    DemandsUnmet,
    TableMaintenanceError,
    TableMismatch,
)
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.maintenance.removal import RemovedRows, reland, take_out
from lakelog_lake.sinks import iceberg as iceberg_sink
from lakelog_lake.sinks.base import Sink, missing
from lakelog_lake.sinks.iceberg import sqlite_catalog
from lakelog_lake.tables import data_files, shape
from lakelog_lake.tables.settings import ParquetCompression
from lakelog_lake.tables.shape import Layout, TableShape
from lakelog_lake.tasks.engines import in_process, processes
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.delta_states import TAKEN, amend
from plugins.lake.tests.landing.iceberg_states import change_metadata, make_third, sort
from plugins.lake.tests.landing.passes import land, sink_for
from plugins.lake.tests.landing.table_specs import Even, land_spec
from plugins.lake.tests.landing.tables import (
    SMALL,
    TABLE,
    assert_exactly,
    files,
    in_folder,
    keys_of,
    land_all,
    make,
    opened,
    read,
    when,
)
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import filled, open_small


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the table."""
    return tmp_path / "t"


def test_rows_of_an_append_only_delta_table_stay(source: LandingSource, path: Path) -> None:
    """A rewind is refused, and says so."""
    sink: Any = make("delta", path)
    amend(path, **TAKEN["append-only"])
    land_all(source, sink, TaskLimits())
    table, before = opened(f"delta:{path}"), sink.head("S").position
    with pytest.raises(TableMaintenanceError, match=r"append-only \(delta.appendOnly\)"):
        take_out(table, "S", RemovedRows(0), before, before)
    assert read("delta", path).num_rows == 300
    assert len(in_folder(path / "data")) == len(files("delta", path))


def test_a_column_is_not_added_to_a_mapped_delta_table(path: Path) -> None:
    make("delta", path)
    amend(path, **TAKEN["mapped-by-name"])
    sink = sink_for(f"delta:{path}", shape=TableShape(shape.dead_letter_columns()))
    with pytest.raises(DemandsUnmet, match="its column mapping, as it lacks error"):
        sink.prepare()


@pytest.mark.parametrize("known", [False, True])
def test_a_demand_that_comes_while_messages_land(
    known: bool, source: LandingSource, path: Path
) -> None:
    """It is met before the commit, and at once; also where the protocol had the feature before."""
    sink = make("delta", path)
    if known:
        DeltaTable(str(path)).alter.add_constraint({"gone": "queue_offset < 9"})
        DeltaTable(str(path)).alter.drop_constraint("gone")
        sink.prepare()

    def demand() -> None:
        DeltaTable(str(path)).alter.add_constraint({"few": "queue_offset < 2"})

    with pytest.raises(DemandsUnmet, match="its CHECK constraint few"):
        land(source, sink, in_process, SMALL, when("written", demand))
    assert read("delta", path).num_rows == 0
    assert in_folder(path / "data") == set()


def test_a_feature_that_only_deltalake_refuses(
    source: LandingSource, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that a newer protocol has: one try, and not twenty as after a conflict."""
    make("delta", path)
    amend(path, writer=["rowTracking", "domainMetadata"])
    monkeypatch.setattr("lakelog_lake.sinks.delta_protocol.demands", lambda _: [])
    sink = make("delta", path)
    tries: list[object] = []
    commit = sink.commit
    monkeypatch.setattr(type(sink), "commit", lambda *given: tries.append(commit(*given[1:])))
    with pytest.raises(DemandsUnmet, match=r"RowTracking"):
        land(source, sink, in_process, SMALL)
    assert in_folder(path / "data") == set()


# --- columns that must not be null ---


def strict(kind: str, path: Path, *columns: str, more: TableShape | None = None) -> Sink:
    """A table with such columns, prepared."""
    ours = (more or TableShape()).stored()
    if kind == "delta":
        fields = [each.with_nullable(each.name not in columns) for each in ours]
        DeltaTable.create(str(path), pa.schema(fields), partition_by=["topic", "day"])
    else:
        sink: Any = sink_for(f"iceberg:{path}", shape=more)
        wanted = iceberg_sink.wanted(sink.shape.columns)
        sink.catalog.create_namespace("lakelog")
        spec = iceberg_sink._partitions(wanted, ("topic", "day"))
        changed = [e.model_copy(update={"required": e.name in columns}) for e in wanted.fields]
        sink.catalog.create_table(TABLE, type(wanted)(*changed), partition_spec=spec)
    made = sink_for(f"{kind}:{path}", shape=more)
    made.prepare()
    return made


def tagged(path: Path, *tags: str | None) -> LandingSource:
    """A store with a message for each tag; their bodies have even lengths."""
    with open_small(path) as store:
        store.put_batch([Message("topic", b"..", tags=each, queue_id=0) for each in tags])
    return LandingSource(path, "S")


both_kinds = pytest.mark.parametrize("kind", ["iceberg", "delta"])


def test_the_command_says_why_it_stops(path: Path, tmp_path: Path) -> None:
    strict("delta", path, "tags")
    store = tagged(tmp_path / "s", "a", None).path
    found = run("dispatch", store, "--to", f"delta:{path}", "--once")
    assert found.exit_code == 2
    (line,) = found.stderr.splitlines()
    assert "has no tags, which must not be null" in line


def test_a_row_that_another_process_refuses(source: LandingSource, path: Path) -> None:
    """It is no temporary error, with which a service would be started again and again."""
    sink = strict("delta", path, "tags")
    with (
        processes(2) as engine,
        pytest.raises(TableMismatch, match="has no tags, which must not be null"),
    ):
        land(source, sink, engine, SMALL)
    assert in_folder(sink.folder) == set()


@both_kinds
def test_a_row_without_a_required_value_is_a_dead_letter(
    kind: str, path: Path, tmp_path: Path
) -> None:
    """Where there is a table of them; it lands once the column may be null."""
    more = TableShape(shape.parsed_columns([Even().fields], keep_body=False))
    table = path / "of" if kind == "delta" else path
    strict(kind, table, "tags", "length", more=more)
    source = tagged(tmp_path / "s", "a", None, "c")
    spec = TableSpec(f"{kind}:{table}", parsers={"*": Even()})
    land_spec(source, spec)
    assert sorted(read(kind, table)["tags"].to_pylist()) == ["a", "c"]
    if kind == "delta":
        dead = read(kind, path / "of_dead_letters")
    else:
        dead = read(kind, path, f"{TABLE}_dead_letters")
    assert dead["error"].to_pylist() == ["tags must not be null"]
    (done,) = reland(spec)
    assert (done.landed, done.left) == (0, 1)


def test_required_parts_of_columns() -> None:
    """Inside of structs, lists and maps, and of slices of them."""
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    table = pa.schema(
        [
            pa.field("s", inner),
            pa.field("l", pa.list_(pa.field("element", inner))),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
            pa.field("gone", pa.int64(), nullable=False),
            pa.field("free", pa.int64()),
        ]
    )
    free = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    good, bad = {"a": 1, "b": None}, {"a": None, "b": 1}
    batch = pa.RecordBatch.from_pydict(
        {
            "s": pa.array([bad, good, None, bad, good], free),
            "l": pa.array([[bad], [good, bad], [], None, [good]], pa.list_(free)),
            "m": pa.array(
                [[("k", None)], [("k", 1)], None, [("k", 1), ("i", None)], []],
                pa.map_(pa.string(), pa.int64()),
            ),
        }
    ).slice(1)
    names = table.names
    layout = Layout(required=shape.demanding(table, names))
    assert layout.required.names == names[:-1]
    found = {name: np.flatnonzero(rows).tolist() for name, rows in shape.refused(batch, layout)}
    assert found == {"s.a": [2], "l.element.a": [0], "m.value": [2], "gone": [0, 1, 2, 3]}


def test_a_required_column_stays_one_when_others_are_added(path: Path) -> None:
    strict("iceberg", path, "tags")
    sink_for(f"iceberg:{path}", shape=TableShape(shape.dead_letter_columns())).prepare()
    schema = sqlite_catalog(path).load_table(TABLE).schema()
    assert schema.find_field("tags").required
    assert schema.find_field("error").optional


# --- Iceberg ---


def test_an_iceberg_table_of_a_newer_version_is_refused(source: LandingSource, path: Path) -> None:
    """Also one that becomes newer while messages land."""
    sink = make("iceberg", path)
    third = when("written", lambda: change_metadata(path, make_third))
    for act in (
        lambda: land(source, sink, in_process, SMALL, third),
        lambda: make("iceberg", path),
    ):
        with pytest.raises(DemandsUnmet, match="its format version 3"):
            act()
    assert in_folder(sink.folder) == set()


def test_a_foreign_column_with_a_default_is_refused() -> None:
    wanted = iceberg_sink.wanted(TableShape().columns)
    more = NestedField.model_validate(
        {"id": 99, "name": "more", "type": "long", "required": False, "write-default": 7}
    )
    found = iceberg_sink.kinds(type(wanted)(*wanted.fields, more))
    with pytest.raises(TableMismatch, match="more has a default value"):
        missing("t", found, iceberg_sink.kinds(wanted))


def test_an_iceberg_table_says_what_its_files_are(
    source: LandingSource, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the dispatcher is told otherwise."""
    make("iceberg", path)
    properties = {
        "write.parquet.compression-codec": "gzip",
        "write.parquet.compression-level": "9",
        "write.target-file-size-bytes": "8192",
    }
    with sqlite_catalog(path).load_table(TABLE).transaction() as change:
        change.set_properties(properties)
    monkeypatch.setattr("lakelog_lake.tasks.task._STEP_BYTES", 4096)
    spec, levels, writer = TableSpec(f"iceberg:{path}"), set[int](), data_files.parquet_writer

    def of_level(*given: Any) -> Any:
        levels.add(given[-1])
        return writer(*given)

    monkeypatch.setattr(data_files, "parquet_writer", of_level)
    land_spec(source, spec, TaskLimits())
    there = files("iceberg", path)
    assert len(there) > 3, "one for each topic would be larger"
    assert {codec_of(each) for each in there} == {"GZIP"}
    assert levels == {9}
    filled(source.path, 30)
    told = attrs.evolve(spec, compression=ParquetCompression.SNAPPY)
    land_spec(source, told, TaskLimits(file_bytes=1 << 30))
    new = [each for each in files("iceberg", path) if each not in there]
    assert len(new) == 3
    assert {codec_of(each) for each in new} == {"SNAPPY"}


def test_files_are_marked_as_unsorted(source: LandingSource, path: Path) -> None:
    """And are where all files of the table are, whatever the table says of folders."""
    make("iceberg", path)
    with sqlite_catalog(path).load_table(TABLE).transaction() as change:
        places = {"write.data.path": f"file://{path}/x", "write.object-storage.enabled": "true"}
        change.set_properties(places)
    sort(sqlite_catalog(path).load_table(TABLE))
    land_all(source, make("iceberg", path))
    table = sqlite_catalog(path).load_table(TABLE)
    assert table.sort_order().fields
    found = [each.file for each in table.scan().plan_files()]
    assert {each.sort_order_id for each in found} == {None}
    assert {each.file_path.rpartition("/")[0] for each in found} == {f"{table.location()}/data"}
    assert_exactly("iceberg", path, keys_of(source.path, source.store))


def codec_of(file: Path) -> str:
    """Of a column that is always compressed."""
    metadata = parquet.read_metadata(file)
    return str(metadata.row_group(0).column(metadata.num_columns - 1).compression)


@pytest.mark.parametrize(
    ("codec", "known"), [("uncompressed", "none"), ("ZSTD", "auto"), ("lz4", "lz4"), ("x", "auto")]
)
def test_the_codecs_of_iceberg(codec: str, known: str) -> None:
    found = iceberg_sink.file_settings({"write.parquet.compression-codec": codec})
    assert (found.compression, found.file_bytes, found.level) == (known, None, None)


@pytest.mark.parametrize(
    ("codec", "level", "known"),
    [("zstd", "9", 9), ("gzip", "9", 9), ("gzip", "22", None), ("snappy", "1", None)],
)
def test_the_levels_of_iceberg(codec: str, level: str, known: int | None) -> None:
    """A level that the codec has not is left, as it would stop the writer."""
    name = "write.parquet.compression"
    found = iceberg_sink.file_settings({f"{name}-codec": codec, f"{name}-level": level})
    assert found.level == known
    assert iceberg_sink.file_settings({f"{name}-level": "x"}).level is None


def test_a_level_makes_smaller_files(tmp_path: Path) -> None:
    rows = pa.table({"a": [f"{n * 7919 % 9973}" for n in range(9000)]})
    sizes = []
    for level in (None, 19):
        path, codec = tmp_path / str(level), ParquetCompression.ZSTD
        with data_files.parquet_writer(path, rows.schema, codec, level=level) as writer:
            writer.write_table(rows)
        sizes.append(path.stat().st_size)
    assert sizes[1] < sizes[0]
