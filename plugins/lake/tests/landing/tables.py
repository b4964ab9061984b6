"""The three kinds of tables, made alike, and read back by others: pyiceberg, deltalake, pyarrow."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import attrs
import pyarrow as pa
import pytest
from pyarrow import parquet

import lakelog
from lakelog_lake.landing.dispatcher import Landed
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_lake.verify.landed_table import LandedTable, all_opened
from plugins.lake.tests.landing.passes import land, sink_for
from tests.support.sampling import seed_of_this_run

KINDS = ("iceberg", "delta", "parquet")
TABLE = "lakelog.messages"
KEY = ["store", "topic", "queue_id", "queue_offset", "physical_offset"]
SMALL = TaskLimits(pass_bytes=45 << 10, task_bytes=23 << 10, file_bytes=23 << 10)
"""A store of 300 messages lands in three passes, whose edges are inside of segments."""
_Test = TypeVar("_Test", bound=Callable[..., object])


def any_kind(test: _Test) -> _Test:
    """Run a test of what is the same for each kind with one, which the seed chooses.

    With the others it is slow. What a kind does by itself is in ``sink_contract.py``.
    """
    chosen = Random(f"{seed_of_this_run()} {test.__qualname__}").choice(KINDS)
    others = [pytest.param(each, marks=pytest.mark.slow) for each in KINDS if each != chosen]
    decorated: _Test = pytest.mark.parametrize("kind", [chosen, *others])(test)
    return decorated


def make(kind: str, path: Path) -> Sink:
    sink = sink_for(f"{kind}:{path}")
    sink.prepare()
    return sink


def land_all(source: LandingSource, sink: Sink, bounds: TaskLimits = SMALL) -> list[Landed]:
    passes = []
    while (landed := land(source, sink, in_process, bounds)) is not None:
        passes.append(landed)
    return passes


def nothing(*_: object) -> None:
    pass


def land_one(
    source: LandingSource,
    sink: Sink,
    bounds: TaskLimits = SMALL,
    on_phase: Callable[[str], None] = nothing,
) -> Landed:
    """One pass; there is something to land."""
    landed = land(source, sink, in_process, bounds, on_phase)
    assert landed is not None
    return landed


def when(phase: str, act: Callable[[], object]) -> Callable[[str], None]:
    """For ``on_phase``: acts in each phase of this name."""

    def on_phase(what: str) -> None:
        if what == phase:
            act()

    return on_phase


def position_in(sink: Sink, store: str = "S") -> Position:
    found = sink.head(store).position
    assert found is not None
    return found


def in_folder(folder: object) -> set[Path]:
    """All data files that are there."""
    return {each for each in Path(str(folder)).rglob("*.parquet*") if each.is_file()}


@attrs.frozen
class SinkTable:
    """A table that a sink makes, and others read; see ``sink_contract.py``."""

    kind: str
    path: Path

    @property
    def to(self) -> str:
        return f"{self.kind}:{self.path}"

    def made(self) -> Sink:
        return make(self.kind, self.path)

    def read(self) -> pa.Table:
        return read(self.kind, self.path)

    def files(self) -> list[Path]:
        """The data files of its newest version."""
        return files(self.kind, self.path)

    def in_folder(self) -> set[Path]:
        return in_folder(self.made().folder)

    def commits(self) -> int:
        return commits(self.kind, self.path)

    def assert_exactly(self, expected: Sequence[tuple[Any, ...]]) -> None:
        assert_exactly(self.kind, self.path, expected)


def make_foreign(kind: str, path: Path, table: str = TABLE) -> None:
    """A table that is not lakelog's, with two rows; ``table`` is of Iceberg."""
    rows = pa.table({"id": [1, 2], "topic": ["a", "b"]})
    if kind == "delta":
        from deltalake import write_deltalake

        write_deltalake(str(path), rows)
    elif kind == "iceberg":
        from lakelog_lake.sinks.iceberg import sqlite_catalog

        catalog = sqlite_catalog(path)
        catalog.create_namespace(table.partition(".")[0])
        catalog.create_table(table, rows.schema).append(rows)
    else:
        path.mkdir()
        parquet.write_table(rows, path / "rows.parquet")


def read(kind: str, path: Path, table: str = TABLE) -> pa.Table:
    """All rows, as somebody who knows nothing of lakelog reads them; ``table`` is of Iceberg."""
    if kind == "iceberg":
        return iceberg(path, table).scan().to_arrow()
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(path)).to_pyarrow_table()
    from lakelog_lake.sinks.parquet import ParquetSink

    found = [parquet.read_table(each) for each in ParquetSink(path).open_files()]
    if not found:
        return pa.table({name: pa.array([], pa.int64()) for name in KEY})
    return pa.concat_tables(found, promote_options="default")


def files(kind: str, path: Path) -> list[Path]:
    """The data files that the table consists of."""
    if kind == "iceberg":
        found = [each.file.file_path for each in iceberg(path).scan().plan_files()]
        return [Path(unquote(urlsplit(each).path)) for each in found]
    if kind == "delta":
        from deltalake import DeltaTable

        names = pa.table(DeltaTable(str(path)).get_add_actions())["path"].to_pylist()
        return [path / unquote(urlsplit(each).path) for each in names]
    from lakelog_lake.sinks.parquet import ParquetSink

    return ParquetSink(path).paths()


def commits(kind: str, path: Path) -> int:
    """How many commits have added rows, or moved a position."""
    if kind == "iceberg":
        return len(iceberg(path).metadata.snapshots)
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(path)).version()
    return len(list((path / "_lakelog").glob("*.json")))


def iceberg(path: Path, table: str = TABLE) -> Any:
    from lakelog_lake.sinks.iceberg import sqlite_catalog

    return sqlite_catalog(path).load_table(table)


def keys_in(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in KEY), strict=True))


def counted_by_duckdb(rows: pa.Table) -> list[int]:
    """How many rows there are, and of how many records."""
    import duckdb

    rows = rows.select(["topic", "queue_id", "physical_offset"])
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        count = "select count(*), count(distinct physical_offset) from rows"
        return list(connection.execute(count).fetchall()[0])


def keys_of(store_path: Path, store: str, end: int | None = None) -> list[tuple[Any, ...]]:
    """The keys of all messages in a log, read one by one."""
    with lakelog.open(store_path, mode="read") as opened:
        found = opened.scan(None, end)
        return sorted(
            (store, each.topic, each.queue_id, each.queue_offset, each.physical_offset)
            for each in found
        )


def assert_exactly(kind: str, path: Path, expected: Sequence[tuple[Any, ...]]) -> None:
    """Nothing lost, nothing doubled, and in each queue the order of the log."""
    found = keys_in(read(kind, path))
    assert len(found) == len(set(found)), "rows are doubled"
    assert found == sorted(expected)
    assert_ordered(files(kind, path))


def assert_ordered(paths: Sequence[Path]) -> None:
    """In a row group rows are by queue and offset; no two files of a queue hold what mixes."""
    spans = defaultdict(list)
    names = [name for name in KEY if name != "topic"]
    for path in paths:
        with parquet.ParquetFile(path) as file:
            table = file.read(KEY)  # a topic that is a partition is not in it
            groups = [file.read_row_group(number, KEY) for number in range(file.num_row_groups)]
        for group in groups:
            keys = [tuple(row.values()) for row in group.to_pylist()]
            assert keys == sorted(keys)
        rows = list(zip(*(table[name].to_pylist() for name in names), strict=True))
        topic = table["topic"][0].as_py() if "topic" in table.column_names else str(path)
        queues = defaultdict(list)
        for store, queue_id, offset, place in rows:
            queues[store, topic, queue_id].append((offset, place))
        for queue, pairs in queues.items():
            assert [place for _, place in pairs] == sorted(place for _, place in pairs)
            spans[queue].append((pairs[0], pairs[-1]))
    for of_queue in spans.values():
        of_queue.sort()
        for (_, last), (first, _) in itertools.pairwise(of_queue):
            assert last[0] < first[0]
            assert last[1] < first[1]


def opened(to: str, table: str | None = None) -> LandedTable:
    """One table, to be read."""
    return all_opened(to, table)[0].table
