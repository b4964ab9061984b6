"""The contract of tables as others leave them, for the formats of this package.

It has what all of them share; ``iceberg_states.py`` and its like have the states of one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pytest
from pyarrow import parquet

from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.errors import TableMismatch
from lakelog_lake.landing.dispatcher import LandingDispatcher
from lakelog_lake.landing.targets import TableSpec, identity_of
from lakelog_lake.log.wanted import Chosen
from lakelog_lake.tables.settings import Resume
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import ANY_TOPIC, LandingSource, TaskLimits
from lakelog_lake.verify.comparing import COLUMNS
from lakelog_lake.verify.verify import VerifyRequest, verify_here
from lakelog_testing.contracts.tables import (
    Key,
    TableContract,
    TableState,
    TableWorld,
    name_of,
    put,
)
from plugins.lake.tests.landing.table_specs import read_dead
from plugins.lake.tests.landing.tables import KEY, files, keys_in, opened, read

NO_ROWS = "no program changes single rows of a folder of Parquet files"
NO_HISTORY = "its manifests are not rolled back, nor removed by a program"
NO_DEMANDS = "a folder of Parquet files has no schema that demands anything"
of_rows = partial(TableState, only=NO_ROWS)
of_history = partial(TableState, only=NO_HISTORY)
of_columns = partial(TableState, only=NO_DEMANDS)
LIMITS = TaskLimits(pass_bytes=45 << 10, task_bytes=8 << 10, file_bytes=8 << 10)
"""Each dispatch has several tasks, so that an engine of processes starts some."""
TEXT = {ANY_TOPIC: parser_for("string")}


class LakeTables(TableContract):
    """One format; the tasks of a dispatch are run by ``engine``."""

    kind: ClassVar[str]
    engine: ClassVar[Any] = staticmethod(in_process)

    def land(self, world: TableWorld) -> int:
        source = LandingSource(world.store, identity_of(world.store, world.store_id))
        spec = TableSpec(f"{self.kind}:{world.table}", **world.options)
        with LandingDispatcher.of(source, spec, self.engine, LIMITS) as lander:
            return sum(each.rows for each in iter(lander.one_pass, None))

    def rows(self, world: TableWorld) -> Iterable[Key]:
        if world.lost:
            there = [each for each in self.files(world) if each not in world.lost]
            return [key for each in there for key in keys_of_file(each)]
        return keys(self.kind, world.table)

    def files(self, world: TableWorld) -> Iterable[Path]:
        return files(self.kind, world.table)

    def dead_letters(self, world: TableWorld) -> Iterable[Key]:
        return keys_in(read_dead(self.kind, world.table)) if "parsers" in world.options else ()

    def check(self, world: TableWorld) -> None:
        """DuckDB counts the rows of the files; ``verify`` finds what was landed, and no more."""
        if world.lost:
            return
        rows = sum(1 for _ in self.rows(world))
        assert duckdb_count(self.files(world)) == rows
        if not world.gone and not world.added and len(world.stores) == 1 and not world.options:
            ((name, store),) = world.stores.items()
            asked = VerifyRequest(store, name, opened(f"{self.kind}:{world.table}"), Chosen())
            found = verify_here(asked)
            assert found.log.problem is None
            assert {each.kind for each in found.differences.ranges} <= {COLUMNS}


def keys(kind: str, path: Path) -> list[Key]:
    """The keys of all rows; of Delta by DataFusion, as deltalake's other reader refuses some."""
    if kind != "delta":
        return keys_in(read(kind, path))
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder().register("t", DeltaTable(str(path)))
    return keys_in(pa.table(builder.execute(f"SELECT {', '.join(KEY)} FROM t").read_all()))


def keys_of_file(file: Path) -> list[Key]:
    """The keys in a data file; a topic that is a partition is in its path, and not in the file."""
    rows = parquet.read_table(file, partitioning=None)
    folders = [each for each in file.parts if each.startswith("topic=")]
    if "topic" not in rows.column_names:
        topic = unquote(folders[-1].removeprefix("topic="))
        rows = rows.append_column("topic", pa.array([topic] * rows.num_rows))
    return keys_in(rows)


def duckdb_count(paths: Iterable[Path]) -> int:
    """The rows of files, which need not have the same columns."""
    import duckdb

    names = [str(each) for each in paths]
    if not names:
        return 0
    asked = "SELECT count(*) FROM read_parquet(?, union_by_name=true)"
    (found,) = duckdb.connect().execute(asked, [names]).fetchone() or (0,)
    return int(found)


def removing(world: TableWorld, kind: str, act: Callable[[], object]) -> None:
    """Do what removes rows, and expect that they stay away."""
    before = set(keys(kind, world.table))
    act()
    gone = before - set(keys(kind, world.table))
    assert gone
    world.gone |= gone


def adding(world: TableWorld, kind: str, rows: pa.Table, act: Callable[[pa.Table], object]) -> None:
    """Do what adds rows, and expect that they stay."""
    act(rows)
    world.added.update(keys_in(rows))


def rows_of_others(kind: str, world: TableWorld) -> pa.Table:
    """Rows that somebody made by hand, of no store."""
    rows = read(kind, world.table).slice(0, 7)
    names = pa.array(["by hand"] * 7, rows.schema.field("store").type)
    return rows.set_column(rows.schema.get_field_index("store"), "store", names)


def with_text(act: Callable[[TableWorld], object]) -> Callable[[TableWorld], None]:
    """Do it to a table with texts as bodies, which has a table of dead letters."""

    def typed(world: TableWorld) -> None:
        world.anew(parsers=TEXT)
        act(world)

    return typed


def remove_dead_letters(kind: str, world: TableWorld) -> None:
    """Those before are gone; those to come have a new table."""
    world.gone |= set(keys_in(read_dead(kind, world.table)))
    shutil.rmtree(world.table.with_name(f"{world.table.name}_dead_letters"))


def by_position(world: TableWorld) -> None:
    world.options["resume"] = Resume.POSITION


def by_rows(world: TableWorld) -> None:
    """What was deleted lands again."""
    world.options["resume"] = Resume.ROWS
    world.gone.clear()


def lose(world: TableWorld, file: Path, act: Callable[[Path], object]) -> None:
    """Remove or damage a data file; its rows are gone."""
    world.gone |= set(keys_of_file(file))
    world.lost.add(file)
    act(file)


def cut(file: Path) -> None:
    """Leave the first half."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def land_more(world: TableWorld, count: int = 50) -> None:
    put(world.store, count, 2000)
    world.land()


def asked_otherwise(world: TableWorld) -> None:
    world.options["partition"] = ("topic", "hour")


def as_before(world: TableWorld) -> None:
    world.options.clear()


def changed(states: Iterable[TableState], **refused: tuple[str, Any]) -> list[TableState]:
    """The same states, of which a format refuses some: by names with ``_``, with a remedy."""
    left = dict(refused)
    found = []
    for each in states:
        error = left.pop(each.name.replace("-", "_"), None)
        more = {} if error is None else {"refused": error[0], "remedy": error[1]}
        found.append(attrs.evolve(each, **more))
    assert not left, f"no states have the names {sorted(left)}"
    return found


def other_kind_inside(other: str, *below: str) -> Callable[[TableWorld], None]:
    """Another dispatcher lands a table of another kind in the folder of the files."""

    def act(world: TableWorld) -> None:
        spec = TableSpec(f"{other}:{world.table.joinpath(*below)}")
        source = LandingSource(world.store, name_of(world.store))
        with pytest.raises(TableMismatch, match="which is another table, as its"):
            LandingDispatcher.of(source, spec, in_process, LIMITS)

    return act


INSIDE = ("other-table-inside", "lands a table of another kind in its folder, which is refused")
SHARED: Sequence[TableState] = (
    TableState(
        "partitions-asked-otherwise",
        "dispatches with other partition keys",
        asked_otherwise,
        r"it is partitioned by topic,day, not by topic,hour",
        remedy=as_before,
    ),
)
"""What all formats of this package refuse, or take, by themselves."""


def marked_and_damaged(
    mark: Callable[[TableWorld], object],
    unmark: Callable[[TableWorld], object],
    data_file: Callable[[TableWorld], Path],
    drop_dead_letters: Callable[[TableWorld], object],
) -> Sequence[TableState]:
    """States that each format of this package has, made by means of its own."""
    return (
        TableState(
            "topic-mark",
            "marks the table as that of one topic",
            mark,
            "holds the messages of the topic 'orders'",
            remedy=unmark,
        ),
        TableState(
            "data-file-removed", "removes a data file", lambda w: lose(w, data_file(w), Path.unlink)
        ),
        TableState("data-file-cut", "cuts a data file", lambda w: lose(w, data_file(w), cut)),
        TableState(
            "dead-letters-removed",
            "removes the table of dead letters",
            with_text(drop_dead_letters),
            has_dead_letters=True,
        ),
    )


def required(
    require: Callable[[TableWorld], object], let_be_null: Callable[[TableWorld], object]
) -> Sequence[TableState]:
    """States of a table whose column of tags must not be null."""
    return (
        of_columns(
            "column-required",
            "makes a column required, which a message lacks",
            require,
            "has no tags, which must not be null",
            remedy=let_be_null,
        ),
        of_columns(
            "column-required-of-typed",
            "makes a column of a table with dead letters required",
            with_text(require),
            has_dead_letters=True,
        ),
    )
