"""A warehouse without room: the dispatcher says so, loses nothing, and goes on when there is."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakelog
from lakelog import Message
from lakelog_lake.errors import NotWritten, TemporaryError
from lakelog_lake.landing.dispatcher import Landed
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tasks.engines import Engine, in_process, processes
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.program_evidence import landed_to, look
from plugins.lake.tests.landing.tables import assert_exactly, keys_of, land_all, make
from plugins.lake.tests.landing.test_cli import LAKELOG, PROCESSES
from plugins.lake.tests.stores import open_small
from tests.support.smalldisk import tmpfs
from tests.support.waiting import until

DISK_BYTES = 2 << 20
COUNT = 60
BODY_BYTES = 4 << 10
_LONGEST_SECONDS = 60
_PASS = TaskLimits(pass_bytes=512 << 10, task_bytes=64 << 10, file_bytes=64 << 10)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """2 MiB; needs root."""
    with tmpfs(tmp_path, DISK_BYTES) as place:
        yield place


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """240 KiB that no compression makes smaller."""
    path = tmp_path / "store"
    append(path, 0, COUNT)
    return path


def append(path: Path, first: int, count: int) -> None:
    source = random.Random(first)
    with open_small(path, segment_size_bytes=128 << 10) as owner:
        for number in range(first, first + count):
            owner.put(Message(f"topic-{number % 3}", source.randbytes(BODY_BYTES), queue_id=0))


def fill(disk: Path, free_bytes: int) -> Path:
    """Leave so much room; what to remove to have more."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() - free_bytes))
    return ballast


def one_pass(store: Path, sink: Sink, engine: Engine) -> Landed | TemporaryError | None:
    try:
        return land(LandingSource(store, "S"), sink, engine, _PASS)
    except TemporaryError as error:
        return error


@pytest.mark.sample(1)
def test_a_full_disk_ends_a_pass_and_harms_nothing(
    kind: str, store: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    sink = make(kind, disk / "t")
    before = look(kind, disk / "t")
    ballast = fill(disk, 16 << 10)
    found = one_pass(store, sink, in_process)
    assert isinstance(found, TemporaryError)
    assert "No space left on device" in str(found)
    assert str(disk) in str(found)
    assert look(kind, disk / "t") == before
    ballast.unlink()
    land_all(LandingSource(store, "S"), sink)
    assert_exactly(kind, disk / "t", keys_of(store, "S"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_room_for_some_of_it(
    kind: str, tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time with a little more room: data files fail, then metadata, then nothing."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    failed = landed = 0
    with processes(2) as by_processes:
        for number in range(48):
            folder = disk / f"t{number}"
            store = tmp_path / f"s{number}"
            append(store, number, 40)
            sink = make(kind, folder)
            ballast = fill(disk, number * (8 << 10))
            found = one_pass(store, sink, by_processes if number % 2 else in_process)
            failed += isinstance(found, TemporaryError)
            landed += isinstance(found, Landed)
            ballast.unlink()
            land_all(LandingSource(store, "S"), sink)
            assert_exactly(kind, folder, keys_of(store, "S"))
            subprocess.run(["rm", "-r", str(folder)], check=True)
    assert failed > 10
    assert landed > 5


def test_a_dispatcher_waits_for_room(store: Path, disk: Path) -> None:
    table = disk / "t"
    make("delta", table)
    ballast = fill(disk, 16 << 10)
    command = [LAKELOG, "dispatch", str(store), "--to", f"delta:{table}", "--store-id", "S"]
    with subprocess.Popen(
        [*command, *PROCESSES, "--interval-ms", "50"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "No space left on device" in said
        assert "trying again in" in said
        append(store, COUNT, 5)
        ballast.unlink()
        with lakelog.open(store, mode="read") as opened:
            end = opened.max_offset
        until(lambda: landed_to("delta", table) >= end, "nothing lands", seconds=_LONGEST_SECONDS)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=_LONGEST_SECONDS)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert_exactly("delta", table, keys_of(store, "S"))


def test_a_copied_warehouse_without_room_stays_a_copy(store: Path, disk: Path) -> None:
    source, path, copy = LandingSource(store, "S"), disk / "t", disk / "copy"
    land_all(source, make("iceberg", path))
    shutil.copytree(path, copy)
    before = look("iceberg", path)
    ballast = fill(disk, 0)
    for _ in range(2):
        with pytest.raises(NotWritten, match=r"copy: .*No space left on device; make room"):
            make("iceberg", copy)
    ballast.unlink()
    append(store, COUNT, 6)
    land_all(source, make("iceberg", copy))
    assert_exactly("iceberg", copy, keys_of(store, "S"))
    assert look("iceberg", path) == before
