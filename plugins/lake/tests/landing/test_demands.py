"""What a table demands of its writers: it is done, or refused by name before the first file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyarrow import parquet
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from lakelog import Message
from lakelog_lake.errors import (
    DemandsUnmet,
    PositionMissing,
    RowRefused,
    TableMaintenanceError,
    TableMismatch,
)
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.log.wanted import Chosen
from lakelog_lake.maintenance.removal import RemovedRows, reland, take_out
from lakelog_lake.sinks import iceberg as iceberg_sink
from lakelog_lake.sinks.base import Sink, missing
from lakelog_lake.sinks.iceberg import CATALOG_FILE, sqlite_catalog
from lakelog_lake.tables import data_files, shape
from lakelog_lake.tables.settings import ParquetCompression, Resume
from lakelog_lake.tables.shape import Layout, TableShape
from lakelog_lake.tasks.engines import in_process, processes
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_lake.verify.verify import VerifyRequest, verify_here
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


def delta_table(
    path: Path,
    *,
    writer: list[str] | None = None,
    reader: list[str] | None = None,
    version: int = 7,
    settings: dict[str, str] | None = None,
    column: Callable[[dict[str, Any]], None] = lambda _: None,
) -> None:
    """A table as others make it, by its first commit: deltalake has no call for most of them.

    :param column: changes a column in Delta's JSON
    """
    fields = json.loads(Schema.from_arrow(TableShape().stored()).to_json())
    for each in fields["fields"]:
        column(each)
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": version}
    if version >= 7:
        protocol["writerFeatures"] = [*(writer or ()), *(reader or ())]
    if reader:
        protocol |= {"minReaderVersion": 3, "readerFeatures": reader}
    metadata = {
        "id": "a-table",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(fields),
        "partitionColumns": ["topic", "day"],
        "configuration": settings or {},
        "createdTime": 1,
    }
    (path / "_delta_log").mkdir(parents=True)
    first = path / "_delta_log" / f"{0:020d}.json"
    first.write_text(
        "\n".join(json.dumps(e) for e in ({"protocol": protocol}, {"metaData": metadata}))
    )


def described(name: str, **metadata: Any) -> Callable[[dict[str, Any]], None]:
    """Adds to the metadata of a column."""

    def change(column: dict[str, Any]) -> None:
        if column["name"] == name:
            column["metadata"] |= {key.replace("_", "."): it for key, it in metadata.items()}

    return change


def mapped(name: Callable[[str], str]) -> Callable[[dict[str, Any]], None]:
    numbers = iter(range(1, 99))

    def change(column: dict[str, Any]) -> None:
        column["metadata"] |= {
            "delta.columnMapping.id": next(numbers),
            "delta.columnMapping.physicalName": name(column["name"]),
        }

    return change


BY_NAME = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "98"}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    **{
        name: ({"writer": [name, *more]}, f"its feature {name}")
        for name, *more in (
            ("rowTracking", "domainMetadata"),
            ("inCommitTimestamp",),
            ("clustering", "domainMetadata"),
            ("allowColumnDefaults",),
            ("identityColumns",),
            ("icebergCompatV1",),
            ("somethingNew",),
        )
    },
    "typeWidening": ({"reader": ["typeWidening"]}, "its feature typeWidening"),
    "identity of old": ({"version": 6}, "its feature identityColumns"),
    "check": (
        {"writer": ["checkConstraints"], "settings": {"delta.constraints.few": "flag < 2"}},
        r"its CHECK constraint few \(flag < 2\)",
    ),
    "check of old": (
        {"version": 3, "settings": {"delta.constraints.few": "flag < 2"}},
        "its CHECK constraint few",
    ),
    "invariant": (
        {"version": 2, "column": described("flag", delta_invariants="{}")},
        "the invariant of its column flag",
    ),
    "generated": (
        {"version": 4, "column": described("day", delta_generationExpression="x")},
        "its generated column day",
    ),
    "renamed": (
        {
            "reader": ["columnMapping"],
            "settings": BY_NAME,
            "column": mapped(lambda name: "col-5f" if name == "tags" else name),
        },
        r"its column mapping by name \(tags\)",
    ),
    "by id": (
        {
            "reader": ["columnMapping"],
            "settings": {**BY_NAME, "delta.columnMapping.mode": "id"},
            "column": mapped(str),
        },
        "its column mapping by id",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_delta_table_is_refused_by_name(path: Path, name: str) -> None:
    """And nothing is written, not even a version of the table."""
    made, expected = REFUSED[name]
    delta_table(path, **made)
    before = sorted(path.rglob("*"))
    with pytest.raises(DemandsUnmet, match=expected):
        make("delta", path)
    assert sorted(each for each in path.rglob("*") if each.is_file()) == [
        each for each in before if each.is_file()
    ]


TAKEN: dict[str, dict[str, Any]] = {
    "listed": {"writer": ["invariants", "checkConstraints", "generatedColumns"]},
    "append only": {"version": 2, "settings": {"delta.appendOnly": "true"}},
    "changes": {"writer": ["changeDataFeed"], "settings": {"delta.enableChangeDataFeed": "true"}},
    "deletion vectors": {
        "reader": ["deletionVectors"],
        "settings": {"delta.enableDeletionVectors": "true"},
    },
    "checkpoints": {"reader": ["v2Checkpoint"]},
    "mapped": {"reader": ["columnMapping"], "settings": BY_NAME, "column": mapped(str)},
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_delta_table_takes_rows_and_is_verified(
    source: LandingSource, path: Path, name: str
) -> None:
    delta_table(path, **TAKEN[name])
    land_all(source, make("delta", path), TaskLimits())
    found = verify_here(VerifyRequest(source.path, "S", opened(f"delta:{path}"), Chosen()))
    assert found.is_clean
    assert sum(each.table for each in found.differences.tallies.values()) == 300
    assert land_all(source, make("delta", path)) == []


def test_rows_of_an_append_only_delta_table_stay(source: LandingSource, path: Path) -> None:
    """A rewind is refused, and says so."""
    delta_table(path, **TAKEN["append only"])
    sink: Any = make("delta", path)
    land_all(source, sink, TaskLimits())
    table, before = opened(f"delta:{path}"), sink.head("S").position
    with pytest.raises(TableMaintenanceError, match=r"append-only \(delta.appendOnly\)"):
        take_out(table, "S", RemovedRows(0), before, before)
    assert read("delta", path).num_rows == 300
    assert len(in_folder(path / "data")) == len(files("delta", path))


def shallow_clone(table: Path, clone: Path) -> None:
    """As SHALLOW CLONE makes it: a log of its own, which lists the files of the other table."""
    logs = sorted((table / "_delta_log").glob("*.json"))
    found = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    protocol, metadata = (
        [each for each in found if name in each][-1] for name in ("protocol", "metaData")
    )
    metadata["metaData"]["id"] = "the-clone"
    added = [each for each in found if "add" in each]
    for each in added:
        each["add"]["path"] = f"file://{table}/{each['add']['path']}"
    info = {"commitInfo": {"timestamp": 1, "operation": "CLONE", "operationParameters": {}}}
    (clone / "_delta_log").mkdir(parents=True)
    lines = map(json.dumps, (info, protocol, metadata, *added))
    (clone / "_delta_log" / f"{0:020d}.json").write_text("\n".join(lines))


def test_a_shallow_clone_goes_on_by_its_rows(
    source: LandingSource, path: Path, tmp_path: Path
) -> None:
    """The original stays as it is, and both are verified."""
    land_all(source, make("delta", path), TaskLimits())
    shallow_clone(path, tmp_path / "clone")
    filled(source.path, 20)
    clone = TableSpec(f"delta:{tmp_path / 'clone'}")
    with pytest.raises(PositionMissing, match="--resume rows"):
        land_spec(source, clone)
    assert (
        sum(each.rows for each in land_spec(source, attrs.evolve(clone, resume=Resume.ROWS))) == 20
    )
    for each, rows in ((tmp_path / "clone", 320), (path, 300)):
        table = opened(f"delta:{each}")
        found = verify_here(VerifyRequest(source.path, "S", table, Chosen()))
        assert found.is_clean
        assert sum(each.table for each in found.differences.tallies.values()) == rows
        assert all(Path(name).is_file() for name, _ in table.data_files())


def test_a_column_is_not_added_to_a_mapped_delta_table(path: Path) -> None:
    delta_table(path, reader=["columnMapping"], settings=BY_NAME, column=mapped(str))
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
    delta_table(path, writer=["rowTracking", "domainMetadata"])
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


@both_kinds
def test_a_row_without_a_required_value_stops(kind: str, path: Path, tmp_path: Path) -> None:
    """It is named, and no row of its pass is in the table; with a value it lands."""
    sink = strict(kind, path, "tags", "store", "topic")
    source = tagged(tmp_path / "s", "a", "b", None, "c")
    with pytest.raises(RowRefused, match=r"at offset 2 of queue topic/0.*has no tags, which must"):
        land_all(source, sink)
    assert read(kind, path).num_rows == 0
    assert in_folder(sink.folder) == set()
    good = tagged(tmp_path / "good", "a", "b")
    land_all(good, sink)
    assert_exactly(kind, path, keys_of(good.path, "S"))


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


def change_metadata(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Of an Iceberg table, in a new file, as any engine does: pyiceberg writes no such one."""
    before = sqlite_catalog(path).load_table(TABLE).metadata_location
    file = Path(before.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    change(metadata)
    file.with_name(f"x{file.name}").write_text(json.dumps(metadata))
    moved = "UPDATE iceberg_tables SET metadata_location = ? WHERE metadata_location = ?"
    with closing(sqlite3.connect(path / CATALOG_FILE)) as catalog, catalog:
        catalog.execute(moved, (f"file://{file.with_name(f'x{file.name}')}", before))


def make_third(metadata: dict[str, Any]) -> None:
    metadata |= {"format-version": 3, "next-row-id": 0}


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


def test_an_iceberg_table_of_an_unknown_transform_is_refused(path: Path) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["partition-specs"][0]["fields"][0]["transform"] = "geohash[4]"

    make("iceberg", path)
    change_metadata(path, change)
    with pytest.raises(TableMismatch, match=r"it is partitioned by .*\(topic\),day, not by topic"):
        make("iceberg", path)


def test_identifier_fields_of_an_iceberg_table_stay(source: LandingSource, path: Path) -> None:
    strict("iceberg", path, "store", "physical_offset")
    with sqlite_catalog(path).load_table(TABLE).update_schema() as update:
        update.set_identifier_fields("store", "physical_offset")
    land_all(source, make("iceberg", path), TaskLimits())
    assert_exactly("iceberg", path, keys_of(source.path, "S"))
    schema = sqlite_catalog(path).load_table(TABLE).schema()
    assert schema.identifier_field_names() == {"store", "physical_offset"}


def test_an_iceberg_table_with_an_unknown_type_is_refused(path: Path) -> None:
    def change(metadata: dict[str, Any]) -> None:
        make_third(metadata)
        metadata["schemas"][0]["fields"][-1]["type"] = "variant"

    make("iceberg", path)
    change_metadata(path, change)
    with pytest.raises(
        DemandsUnmet, match=r"its metadata, which pyiceberg cannot read \(.*variant"
    ):
        make("iceberg", path)


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
        with change.update_sort_order() as order:
            order.desc("store_timestamp", IdentityTransform())
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
