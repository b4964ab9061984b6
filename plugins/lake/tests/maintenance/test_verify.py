"""A table that equals its log, and every way in which one may not."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

import lakelog
from lakelog import Message
from lakelog_lake.errors import NoTable, NotAMessageTable
from lakelog_lake.log.wanted import EVERYTHING
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_lake.verify.comparing import (
    AHEAD,
    BODY,
    COLUMNS,
    CRC,
    DOUBLED,
    EXTRA,
    GAP,
    MISSING,
    PLACE,
    Range,
)
from lakelog_lake.verify.landed_table import LandedTable
from lakelog_lake.verify.verify import Verified, VerifyRequest, verify_here
from lakelog_testing.samples import copy_store
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.tables import (
    SMALL,
    files,
    iceberg,
    land_all,
    make,
    make_foreign,
    opened,
)
from plugins.lake.tests.landing.test_cli import of_integers, run
from plugins.lake.tests.maintenance.planting import (
    change,
    doubled,
    moved_behind,
    with_value,
    without,
)
from plugins.lake.tests.stores import SEGMENT, damaged, filled, mislabelled, open_small

Changed = Callable[[pa.Table], pa.Table]
PART = 40_000
"""Many parts of the log, so that ranges go over the edges of parts."""


def verify(to: str, store: Path, name: str = "S") -> Verified:
    return verify_here(VerifyRequest(store, name, opened(to), EVERYTHING), part_bytes=PART)


def ranges(found: Verified) -> dict[str, list[Range]]:
    kinds: dict[str, list[Range]] = {}
    for each in found.differences.each():
        kinds.setdefault(each.kind, []).append(each)
    return kinds


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and a Parquet table of everything."""
    path = tmp_path_factory.mktemp("made")
    filled(path / "store", 300)
    land_all(LandingSource(path / "store", "S"), make("parquet", path / "t"))
    return path


@pytest.fixture
def store_path(made: Path, tmp_path: Path) -> Path:
    """The store, to be changed."""
    return copy_store(made / "store", tmp_path / "store")


@pytest.fixture
def landed(made: Path, tmp_path: Path) -> Path:
    """Its table, to be changed."""
    return copy_store(made / "t", tmp_path / "t")


@pytest.mark.sample(1)
def test_what_landed_equals_the_log(kind: str, store_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    filled(other, 40)
    sink = make(kind, tmp_path / "t")
    land_all(LandingSource(other, "O"), sink)
    land(LandingSource(store_path, "S"), sink, in_process, SMALL)  # not everything
    found = verify(f"{kind}:{tmp_path / 't'}", store_path)
    assert found.is_clean
    assert found.position.end < found.log.end
    assert found.differences.ranges == []
    tallies = found.differences.tallies.values()
    assert 0 < sum(each.log for each in tallies) == sum(each.table for each in tallies) < 300
    assert "body" in found.columns
    assert verify(f"{kind}:{tmp_path / 't'}", other, "O").is_clean


def test_columns_in_another_order_are_the_same(store_path: Path, tmp_path: Path) -> None:
    land_all(LandingSource(store_path, "S"), make("iceberg", tmp_path / "t"))
    with iceberg(tmp_path / "t").update_schema() as update:
        update.move_first("born_host")
    assert verify(f"iceberg:{tmp_path / 't'}", store_path).is_clean


def test_rows_that_are_gone_are_one_range(landed: Path, store_path: Path) -> None:
    change(landed, "topic-1", lambda table: without(table, 1, 2))
    found = verify(f"parquet:{landed}", store_path)
    (gone,) = ranges(found)[MISSING]
    assert found.queues.names[gone.queue] == ("topic-1", 0)
    assert (gone.first, gone.last, gone.rows) == (1, 2, 2)
    assert set(ranges(found)) == {MISSING}
    assert found.differences.rows == 2
    assert found.differences.of(gone.queue).gaps == 2
    with lakelog.open(store_path, mode="read") as store:
        message = next(store.scan(gone.start))
    assert (message.topic, message.queue_offset) == ("topic-1", 1)


def test_what_the_log_holds_no_more_is_not_compared(landed: Path, store_path: Path) -> None:
    first = min((store_path / "commitlog").iterdir())
    first.unlink()
    change(landed, "topic-1", lambda table: without(table, 1))
    change(landed, "topic-0", lambda table: with_value(table, 1, "tags", "altered"))
    found = verify(f"parquet:{landed}", store_path)
    assert found.is_clean
    assert found.log.low == SEGMENT
    older = sum(each.older for each in found.differences.tallies.values())
    assert older > 20
    (gap,) = ranges(found)[GAP]
    assert (gap.first, gap.last) == (1, 1)


@pytest.mark.parametrize(
    ("changed", "kind", "start"),
    [
        pytest.param(lambda table: with_value(table, 1, "body", b"x"), BODY, None, id="body"),
        pytest.param(
            lambda table: with_value(table, 1, "properties", [("number", "x")]),
            COLUMNS,
            None,
            id="properties",
        ),
        pytest.param(lambda table: with_value(table, 1, "keys", ["x"]), COLUMNS, None, id="keys"),
        pytest.param(
            lambda table: with_value(table, 1, "unique_key", None), COLUMNS, None, id="null"
        ),
        pytest.param(
            lambda table: with_value(table, 1, "queue_offset", 999), PLACE, None, id="offset"
        ),
        pytest.param(lambda table: doubled(table, 3), DOUBLED, None, id="doubled"),
        pytest.param(
            lambda table: moved_behind(table, 0, 10_000_000), AHEAD, 10_000_000, id="ahead"
        ),
        pytest.param(lambda table: moved_behind(table, 0, 5), EXTRA, 5, id="extra"),
        pytest.param(lambda table: moved_behind(table, 0, None), EXTRA, None, id="no place"),
        pytest.param(lambda table: moved_behind(table, 0, -7), EXTRA, None, id="negative place"),
    ],
)
def test_a_row_that_differs_is_found(
    landed: Path, store_path: Path, changed: Changed, kind: str, start: int | None
) -> None:
    change(landed, "topic-0", changed)
    found = ranges(verify(f"parquet:{landed}", store_path))
    (differs,) = found[kind]
    assert set(found) == {kind}
    assert differs.rows == 1
    assert start in (None, differs.start)


def test_a_checksum_is_looked_at_where_the_log_has_nothing(landed: Path, store_path: Path) -> None:
    min((store_path / "commitlog").iterdir()).unlink()
    change(landed, "topic-2", lambda table: with_value(table, 1, "body", b"altered"))
    found = verify(f"parquet:{landed}", store_path)
    (bad,) = ranges(found)[CRC]
    assert not found.is_clean
    assert bad.rows == 1


def test_bodies_that_were_compressed_are_compared(tmp_path: Path) -> None:
    store_path, body = tmp_path / "s", zlib.compress(b"again and again " * 500)
    mislabelled(store_path, [body] * 5, *range(5))  # which is right here
    land_all(LandingSource(store_path, "S"), make("parquet", tmp_path / "t"))
    assert verify(f"parquet:{tmp_path / 't'}", store_path).is_clean
    change(tmp_path / "t", "t", lambda table: with_value(table, 2, "body", b"altered"))
    (differs,) = ranges(verify(f"parquet:{tmp_path / 't'}", store_path))[BODY]
    assert differs.first == 2


def test_damage_in_the_log_is_told_and_no_difference(tmp_path: Path, store_path: Path) -> None:
    offset = damaged(store_path, 40)
    land_all(LandingSource(store_path, "S", skip_damage=True), make("parquet", tmp_path / "t"))
    found = verify(f"parquet:{tmp_path / 't'}", store_path)
    assert found.is_clean
    assert [each.start for each in found.damaged] == [offset]


def test_the_command_says_what_differs(landed: Path, store_path: Path) -> None:
    arguments = ("lake", "verify", store_path, "--to", f"parquet:{landed}", "--store-id", "S")
    clean = run(*arguments)
    assert clean.exit_code == 0, clean.stderr
    assert "equal" in clean.stdout
    change(landed, "topic-1", lambda table: without(table, 1))
    differs = run(*arguments)
    assert differs.exit_code == 1
    assert "missing\ttopic-1\t0\t1\t1\t1" in differs.stdout
    lines = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    assert lines[-1]["differing_rows"] == 1
    assert not lines[-1]["clean"]
    assert [each["first"] for each in lines if each["kind"] == "difference"] == [1]


def test_a_table_for_each_topic_and_its_dead_letters(tmp_path: Path) -> None:
    store_path = tmp_path / "s"
    with open_small(store_path) as store:
        for number in range(30):
            body = b"no json" if number % 10 == 3 else b'{"a": %d}' % number
            store.put_batch([Message(name, body, queue_id=0) for name in ("a", "b.c")])
    to = f"parquet:{tmp_path / 'of-{topic}'}"
    done = run("dispatch", store_path, "--to", to, "--once", "--body", of_integers(tmp_path, "a"))
    assert done.exit_code == 0, done.stderr
    arguments = ("lake", "verify", store_path, "--to", to)
    equal = run(*arguments, "--json")
    assert equal.exit_code == 0, equal.stdout
    lines = [json.loads(line) for line in equal.stdout.splitlines()]
    assert [each["table_rows"] for each in lines if each["kind"] == "summary"] == [30, 30]
    change(tmp_path / "of-a_dead_letters", "a", lambda table: without(table, 1))
    differs = run(*arguments)
    assert differs.exit_code == 1
    assert "missing\ta\t0\t13\t13\t1" in differs.stdout
    assert "missing" not in run(*arguments, "--topic", "b.c").stdout
    assert run("lake", "compact", to).stdout.count("files became") == 3


def test_what_is_no_table_of_messages_is_refused(kind: str, tmp_path: Path) -> None:
    to = f"{kind}:{tmp_path / 't'}"
    with pytest.raises(NoTable, match="there is no folder"):
        opened(to)
    assert not (tmp_path / "t").exists()
    (tmp_path / "t").mkdir()
    with pytest.raises(NoTable):
        opened(to)
    if kind != "parquet":
        make_foreign(kind, tmp_path / "t", "x.y")
        with pytest.raises(NotAMessageTable, match="physical_offset"):
            opened(to, "x.y" if kind == "iceberg" else None)


def test_a_table_of_another_store_is_refused_in_one_line(landed: Path, tmp_path: Path) -> None:
    other = filled(tmp_path / "other", 10)
    done = run("lake", "verify", other, "--to", f"parquet:{landed}")
    assert done.exit_code == 2
    assert "it has S" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.sample(1)
def test_a_data_file_that_is_gone_is_told(kind: str, made: Path, tmp_path: Path) -> None:
    land_all(LandingSource(made / "store", "S"), make(kind, tmp_path / "u"), TaskLimits())
    files(kind, tmp_path / "u")[1].unlink()
    to = ("--to", f"{kind}:{tmp_path / 'u'}", "--store-id", "S")
    done = run("lake", "verify", made / "store", *to)
    assert done.exit_code == 1
    assert "cannot be read" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --- while a dispatcher is at work: nothing false is said ---


@attrs.frozen
class Landing:
    """A table in which a pass lands between the look at the position and the first row."""

    table: LandedTable
    source: LandingSource
    sink: Sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert land(self.source, self.sink, in_process, SMALL) is not None
        yield from self.table.batches(store, columns)


@pytest.mark.sample(1)
def test_what_lands_while_rows_are_read_is_no_difference(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    source, sink = LandingSource(store_path, "S"), make(kind, tmp_path / "t")
    land(source, sink, in_process, SMALL)
    table: Any = Landing(opened(f"{kind}:{tmp_path / 't'}"), source, sink)
    found = verify_here(VerifyRequest(store_path, "S", table, EVERYTHING))
    assert found.is_clean, list(found.differences.each())
    tallies = found.differences.tallies.values()
    assert 0 < sum(each.log for each in tallies) == sum(each.table for each in tallies) < 300
    after = table.position("S")
    assert after is not None
    assert found.position.end < after.end


def test_rows_of_a_store_that_did_not_move_are_still_told(store_path: Path, tmp_path: Path) -> None:
    """The store under another name lands meanwhile, which hides nothing of the first."""
    other = tmp_path / "other"
    filled(other, 300)
    sink = make("parquet", tmp_path / "t")
    land(LandingSource(store_path, "S"), sink, in_process, SMALL)
    table: Any = Landing(opened(f"parquet:{tmp_path / 't'}"), LandingSource(other, "O"), sink)
    assert verify_here(VerifyRequest(store_path, "S", table, EVERYTHING)).is_clean
