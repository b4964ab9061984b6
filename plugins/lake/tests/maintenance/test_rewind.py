"""A log lost its tail after that had landed: the rows are told, taken out, and landing goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from lakelog import Message
from lakelog_lake.errors import Conflict, TooBusy, WrongLog
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.maintenance.removal import RemovedRows, planned, take_out
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tables.shape import TableShape
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_testing.samples import copy_store
from plugins.lake.tests.landing.killing import killed_at
from plugins.lake.tests.landing.passes import sink_for
from plugins.lake.tests.landing.table_specs import Even, assert_parsed, land_spec, read_dead
from plugins.lake.tests.landing.tables import (
    commits,
    keys_in,
    keys_of,
    land_all,
    make,
    opened,
    read,
)
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import filled, open_small

BIG = TaskLimits()


@attrs.frozen
class Cut:
    """A store that lost 50 of 350 messages, all of which are in a table beside another store."""

    source: LandingSource
    other: LandingSource
    table: Path

    def lose(self, backup: Path, new: int) -> None:
        """What was put since the backup is gone; so many others come in its place."""
        shutil.rmtree(self.source.path)
        copy_store(backup, self.source.path)
        with open_small(self.source.path) as store:
            store.put_batch([Message("t", bytes([n]) * 250, queue_id=0) for n in range(new)])

    def assert_lands(self, kind: str, sink: Sink, new: int) -> None:
        """What the log has now, and the other store's rows."""
        land_all(self.source, sink, BIG)
        expected = keys_of(self.source.path, "S") + keys_of(self.other.path, "O")
        assert len(expected) == 360 + new
        assert keys_in(read(kind, self.table)) == sorted(expected)


def cut(store_path: Path, tmp_path: Path, make_it: Callable[[], Sink], new: int) -> Cut:
    found = Cut(
        LandingSource(store_path, "S"),
        LandingSource(filled(tmp_path / "o", 60), "O"),
        tmp_path / "t",
    )
    copy_store(store_path, tmp_path / "backup")
    filled(store_path, 50)
    for each in (found.other, found.source):
        land_all(each, make_it(), BIG)  # in one commit: files hold what goes and what stays
    found.lose(tmp_path / "backup", new)
    with pytest.raises(WrongLog, match="lakelog lake rewind"):
        land_all(found.source, make_it(), BIG)
    return found


@pytest.mark.sample(1)
def test_rows_that_the_log_has_no_more_go(kind: str, store_path: Path, tmp_path: Path) -> None:
    found = cut(store_path, tmp_path, lambda: make(kind, tmp_path / "t"), 90)
    command = ("lake", "rewind", store_path, "--to", f"{kind}:{found.table}", "--store-id", "S")
    before = commits(kind, found.table)
    told = run(*command)
    assert told.exit_code == 1, told.output
    assert "50 rows from physical offset" in told.stdout
    assert "would be removed; give --yes" in told.stdout
    assert commits(kind, found.table) == before
    done = run(*command, "--yes")
    assert done.exit_code == 0, done.output
    assert "50 rows" in done.stdout
    assert read(kind, found.table).num_rows == 300 + 60
    found.assert_lands(kind, make(kind, found.table), 90)
    assert land_all(found.other, make(kind, found.table), BIG) == []
    assert "nothing to do" in run(*command, "--yes").stdout


@pytest.mark.slow
@pytest.mark.parametrize("partition", [("store",), (), ("topic", "hour", "store")])
def test_other_partitions(
    kind: str, store_path: Path, tmp_path: Path, partition: tuple[str, ...]
) -> None:
    shape = TableShape(partition=partition)

    def make_it() -> Sink:
        sink = sink_for(f"{kind}:{tmp_path / 't'}", shape=shape)
        sink.prepare()
        return sink

    found = cut(store_path, tmp_path, make_it, 0)
    (plan,) = planned(store_path, "S", f"{kind}:{found.table}", None, None)
    assert plan.rows == 50
    plan.do()
    found.assert_lands(kind, make_it(), 0)


@pytest.mark.slow
@pytest.mark.parametrize("is_after", [False, True])
def test_killed_at_the_commit(store_path: Path, tmp_path: Path, is_after: bool) -> None:
    """Nothing has changed, or all of it."""
    found = cut(store_path, tmp_path, lambda: make("parquet", tmp_path / "t"), 20)

    def work() -> None:
        for each in planned(store_path, "S", f"parquet:{found.table}", None, None):
            each.do()

    owner, name = (Path, "rename") if is_after else (os, "link")
    assert killed_at(work, owner, name, 0)
    make("parquet", found.table)
    assert read("parquet", found.table).num_rows == (360 if is_after else 410)
    work()
    found.assert_lands("parquet", make("parquet", found.table), 20)


@pytest.mark.slow
def test_a_table_that_was_changed_meanwhile_is_left(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    found = cut(store_path, tmp_path, lambda: make(kind, tmp_path / "t"), 0)
    (first,) = planned(store_path, "S", f"{kind}:{found.table}", None, None)
    first.do()
    rows, before = read(kind, found.table).num_rows, commits(kind, found.table)
    with pytest.raises(TooBusy, match="nothing was changed"):
        first.do()
    with pytest.raises(Conflict):
        take_out(opened(f"{kind}:{found.table}"), "S", RemovedRows(0), first.before, first.after)
    assert (read(kind, found.table).num_rows, commits(kind, found.table)) == (rows, before)


def test_dead_letters_go_too(store_path: Path, tmp_path: Path) -> None:
    spec = TableSpec(f"delta:{tmp_path / 't'}", parsers={"*": Even()})
    source = LandingSource(store_path, "S")
    copy_store(store_path, tmp_path / "backup")
    filled(store_path, 50)
    land_spec(source, spec, BIG)
    Cut(source, source, tmp_path / "t").lose(tmp_path / "backup", 33)
    plans = list(planned(store_path, "S", spec.to, None, None))
    assert len(plans) == 2
    assert sum(each.rows for each in plans) == 50
    for each in plans:
        each.do()
    land_spec(source, spec, BIG)
    good, bad = read("delta", tmp_path / "t"), read_dead("delta", tmp_path / "t")
    assert_parsed(good, bad, store_path, None)
