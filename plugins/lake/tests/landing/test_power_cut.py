"""A power cut takes what was not synced; new messages take its offsets. No table ever held it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import lakelog
from lakelog import Message
from lakelog_lake.errors import WrongLog
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_testing.samples import copy_store
from plugins.lake.tests.landing.tables import (
    any_kind,
    assert_exactly,
    keys_of,
    land_all,
    make,
    read,
)
from plugins.lake.tests.stores import SEGMENT, filled, messages, open_small

_LONG_MS = 3_600_000
_BOUNDS = TaskLimits(pass_bytes=256 << 10, task_bytes=32 << 10)


def cut_power(store: Path, flushed: int, into: Path) -> None:
    """Copy a store as the worst power cut leaves it: behind ``flushed`` there are zeros."""
    copy_store(store, into)
    for segment in (into / "commitlog").iterdir():
        kept = max(0, flushed - int(segment.name))
        size = segment.stat().st_size
        if kept < size:
            data = segment.read_bytes()[:kept]
            segment.write_bytes(data + bytes(size - kept))
    for folder in ("consumequeue", "index"):  # never synced by force: they may be gone as well
        shutil.rmtree(into / folder, ignore_errors=True)
    (into / "checkpoint").unlink(missing_ok=True)


@any_kind
def test_no_row_is_ahead_of_what_is_durable(kind: str, tmp_path: Path) -> None:
    store, after, table = tmp_path / "s", tmp_path / "after", tmp_path / "t"
    filled(store, 100)
    timed = {"flush": "timed", "timed.flush_interval_ms": _LONG_MS}
    with open_small(store, **timed) as owner:
        durable = owner.flushed_offset
        lost = owner.put_batch([Message("t", b"lost" * 20, queue_id=0) for _ in range(100)])
        assert owner.max_offset > owner.flushed_offset == durable
        sink = make(kind, table)
        land_all(LandingSource(store, "S"), sink, _BOUNDS)
        assert read(kind, table).num_rows == 100
        cut_power(store, owner.flushed_offset, after)
    with open_small(after) as owner:
        assert owner.max_offset < durable + SEGMENT
        assert sum(1 for _ in owner.scan()) == 100
        new = owner.put_batch([Message("t", b"new", queue_id=0) for _ in range(50)])
        assert new[0].physical_offset == lost[0].physical_offset
        assert new[0].queue_offset == lost[0].queue_offset
    land_all(LandingSource(after, "S"), make(kind, table), _BOUNDS)
    assert_exactly(kind, table, keys_of(after, "S"))
    of_topic = [row for row in read(kind, table).to_pylist() if row["topic"] == "t"]
    assert [row["body"] for row in of_topic] == [b"new"] * 50


@any_kind
def test_a_table_that_is_ahead_of_its_log_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher that lands what is not durable: the cut shows, and nothing mixes."""
    store, after, table = tmp_path / "s", tmp_path / "after", tmp_path / "t"
    with open_small(store, flush="timed", **{"timed.flush_interval_ms": _LONG_MS}) as owner:
        owner.put_batch([Message("t", b"lost" * 20, queue_id=0) for _ in range(100)])
        with monkeypatch.context() as careless:
            careless.setattr(lakelog.Store, "flushed_offset", lakelog.Store.max_offset)
            land_all(LandingSource(store, "S"), make(kind, table), _BOUNDS)
        assert read(kind, table).num_rows == 100
        cut_power(store, owner.flushed_offset, after)
    with open_small(after) as owner:
        owner.put_batch([Message("t", b"new" * 40, queue_id=0) for _ in range(200)])
    with pytest.raises(WrongLog, match="It was cut"):
        land_all(LandingSource(after, "S"), make(kind, table), _BOUNDS)
    assert read(kind, table).num_rows == 100


@any_kind
def test_what_is_synced_while_it_lands_stays(kind: str, tmp_path: Path) -> None:
    """The same with a short interval: how much lands is by chance, that it stays is not."""
    store, table = tmp_path / "s", tmp_path / "t"
    sink = make(kind, table)
    source = LandingSource(store, "S")
    timed = {"flush": "timed", "timed.flush_interval_ms": 5, "timed.flush_thorough_interval_ms": 10}
    with open_small(store, **timed) as owner:
        for _ in range(10):
            owner.put_batch(list(messages(20)))
            land_all(source, sink)
            time.sleep(0.003)
        land_all(source, sink)
        cut_power(store, owner.flushed_offset, tmp_path / "after")
    with open_small(tmp_path / "after") as owner:
        owner.put_batch([Message("t", b"new", queue_id=0) for _ in range(50)])
    land_all(LandingSource(tmp_path / "after", "S"), sink)
    assert_exactly(kind, table, keys_of(tmp_path / "after", "S"))
    with lakelog.open(tmp_path / "after", mode="read") as reader:
        assert reader.flushed_offset > 0
