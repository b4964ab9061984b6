"""Retention deletes while a dispatcher lands, is killed and comes back: no gap and no double.

The dispatcher's pin makes retention wait for it; with pins overridden, what was deleted too early
is told with its range, by the owner and by the dispatcher, which goes on only when told.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import Result

import lakelog
from lakelog import Message
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, read_pins
from tests.support.commands import invoke
from tests.support.working import working

pytest.importorskip("lakelog_retention")
landing: Final = pytest.importorskip("lakelog_lake.sinks.parquet")
plugin: Final = pytest.importorskip("lakelog_lake.plugin")

FILES: Final = RealFileSystem()
SEGMENT: Final = 64 << 10
QUEUES: Final = 3
_LONGEST_SECONDS: Final = 60

PRODUCER: Final = """
import json, select, sys, lakelog
number = int(sys.argv[2])
with lakelog.open(sys.argv[1], **json.loads(sys.argv[3])) as store:
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        many = range(number, number + 30)
        store.put_batch(
            [lakelog.Message("t", b"%d " % n * 40, queue_id=n % 3, keys=str(n)) for n in many]
        )
        number += len(many)
print(number, flush=True)
"""


def settings(**more: Any) -> dict[str, Any]:
    return {
        "flush": "inline",
        "segment_size_bytes": SEGMENT,
        "cleaner": "retention",
        "retention": {"max_segments": 2, "delete_interval_ms": 0, "file_reserved_hours": 0},
        "maintenance": {"first_round_ms": 10, "interval_ms": 20},
        **more,
    }


def fill(store: lakelog.Store, first: int, count: int) -> None:
    many = range(first, first + count)
    store.put_batch([Message("t", b"%d " % n * 40, queue_id=n % QUEUES, keys=str(n)) for n in many])
    assert store.wait_dispatched()


def dispatch(store: Path, table: Path, *more: str) -> list[str]:
    """The command; small passes, so that there are many."""
    script = str(Path(sys.executable).with_name("lakelog"))
    engine = ("--engine", "processes", "--processes", "1")
    fixed = (*engine, "--pass-mib", "1", "--interval-ms", "20", *more)
    return [script, "dispatch", str(store), "--to", f"parquet:{table}", *fixed]


def once(store: Path, table: Path, *more: str) -> Result:
    """The command to its end, in this process."""
    return invoke(*dispatch(store, table, "--once", *more)[1:])


def numbers(table: Path) -> list[int]:
    """The numbers of all messages that landed, sorted; no offset of a queue is there twice."""
    from pyarrow import parquet

    found: list[int] = []
    queues: dict[int, list[int]] = {}
    for path in landing.ParquetSink(table).paths():
        rows = parquet.read_table(path, partitioning=None)
        found += [int(each[0]) for each in rows["keys"].to_pylist()]
        names = ("queue_id", "queue_offset")
        for queue, at in zip(*(rows[name].to_pylist() for name in names), strict=True):
            queues.setdefault(queue, []).append(at)
    for offsets in queues.values():
        assert len(set(offsets)) == len(offsets)
    return sorted(found)


def only_pin(store: Path) -> Pin:
    (pin,) = read_pins(FILES, store)
    assert pin.problem is None
    return pin


def first_segment(store: Path) -> int:
    return min(int(each.name) for each in (store / "commitlog").iterdir())


@contextmanager
def producing(store: Path, first: int, total: list[int]) -> Iterator[None]:
    """An owner in a process of its own that appends and cleans; how far it came goes to total."""
    command = [sys.executable, "-c", PRODUCER, str(store), str(first), json.dumps(settings())]
    with working(command, _LONGEST_SECONDS) as said:
        yield
    total.append(int(said[-1]))


def run_and_kill(store: Path, table: Path, seconds: float) -> None:
    """Let it land until the pin has moved, then kill it somewhen."""
    before = only_pin(store).position
    with subprocess.Popen(
        dispatch(store, table), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        end = time.monotonic() + _LONGEST_SECONDS
        while only_pin(store).position == before:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(random.uniform(0, seconds))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=_LONGEST_SECONDS)


def kills(tmp_path: Path, rounds: int) -> None:
    store, table = tmp_path / "s", tmp_path / "t"
    with lakelog.open(store, **settings()) as owner:
        fill(owner, 0, 30)
    assert once(store, table).exit_code == 0
    total: list[int] = []
    minima = []
    with producing(store, 30, total):
        for _ in range(rounds):
            run_and_kill(store, table, 0.5)
            minima.append(first_segment(store))
            time.sleep(0.3)  # nobody lands: what comes now must wait
            assert first_segment(store) <= only_pin(store).position
        while first_segment(store) == 0:  # on a busy machine it takes some more
            run_and_kill(store, table, 0.5)
    done = once(store, table)
    assert done.exit_code == 0, done.stderr
    assert len(set(minima)) > rounds // 4, "retention deleted little meanwhile"
    assert numbers(table) == list(range(total[0]))


def test_retention_while_a_dispatcher_is_killed(tmp_path: Path) -> None:
    kills(tmp_path, rounds=2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_retention_while_a_dispatcher_is_killed_again_and_again(tmp_path: Path) -> None:
    kills(tmp_path, rounds=25)


@pytest.fixture
def landed(tmp_path: Path) -> tuple[Path, Path]:
    """A store whose first messages have landed, and many more that have not; nobody runs."""
    store, table = tmp_path / "s", tmp_path / "t"
    with lakelog.open(store, **settings(cleaner=None)) as owner:
        fill(owner, 0, 100)
    assert once(store, table).exit_code == 0
    with lakelog.open(store, **settings(cleaner=None)) as owner:
        fill(owner, 100, 2000)
    return store, table


def later(**more: Any) -> dict[str, Any]:
    """Rounds only when a test asks for them."""
    return settings(maintenance={"first_round_ms": 3_600_000, **more})


def test_it_waits_for_a_dispatcher_that_does_not_run(landed: tuple[Path, Path]) -> None:
    store, table = landed
    with lakelog.open(store, **later()) as owner:
        report = owner.delete_expired()
        assert report.deleted == ()
        assert report.kept is not None
        assert only_pin(store).name in report.kept.reason
        done = once(store, table)
        assert done.exit_code == 0, done.stderr
        assert len(owner.delete_expired().deleted) > 2
        assert owner.min_offset <= only_pin(store).position
    assert numbers(table) == list(range(2100))


def test_what_is_deleted_against_the_pin_is_told_and_accepted_only_when_told(
    landed: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    store, table = landed
    pin = only_pin(store)
    with caplog.at_level(logging.ERROR), lakelog.open(store, **later(override_pins=True)) as owner:
        report = owner.delete_expired()
        minimum = owner.min_offset
    assert minimum > pin.position
    assert {each.pinned_by for each in report.deleted} == {(pin.name,)}
    assert any(pin.name in each.message and "0 to " in each.message for each in caplog.records)

    refused = once(store, table)
    assert refused.exit_code == 1
    gap = f"begins at offset {minimum}.* ends at {pin.position}.*{minimum - pin.position} bytes"
    assert re.search(gap, refused.stderr), refused.stderr
    assert numbers(table) == list(range(100))
    assert only_pin(store).position == pin.position

    accepted = once(store, table, "--gaps", "accept")
    assert accepted.exit_code == 0, accepted.stderr
    found = numbers(table)
    assert found[:100] == list(range(100))
    rest = found[100:]
    assert rest == list(range(rest[0], 2100))
    assert 100 < rest[0] < 2000
    assert once(store, table).exit_code == 0
    assert numbers(table) == found


def test_a_pin_that_was_not_renewed_in_time_holds_nothing(landed: tuple[Path, Path]) -> None:
    store, table = landed
    time.sleep(0.01)
    with lakelog.open(store, **later(pin_expires_after_ms=1)) as owner:
        assert owner.delete_expired().deleted
    refused = once(store, table)
    assert refused.exit_code == 1
    assert "were deleted before they landed" in refused.stderr
