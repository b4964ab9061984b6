"""Power cuts and full disks under masters and copies: no acknowledged put is lost, logs are equal.

A copy on a full disk waits, keeps its records, and continues when there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog_cli.statelines import copy_lags
from lakelog_testing.samples import copy_store
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests.multisource.programs import end_of, program, reaches
from plugins.replication.tests.replica.copies import (
    SEGMENT,
    bodies,
    failure,
    log_of,
    make_log,
    queued,
    replica,
    until,
)
from plugins.replication.tests.replica.test_kills import Pair, pair, size_of
from tests.faults.disks import Disk, eat, made, small
from tests.support.rebooting import rebooted

__all__ = ["pair"]  # a fixture
pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
ROUNDS: Final = [1, pytest.param(10, marks=pytest.mark.slow)]
COUNT: Final = 3000
STATUS_BYTES: Final = 48 << 10
"""Enough for the small files of a copy, but not for a segment."""


# --- power cuts ---


@pytest.fixture(params=["ext4", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with made(request.param, tmp_path) as disk:
        yield disk


def place(disk: Disk, path: Path) -> None:
    """Put the store at ``path`` on the disk, by a symbolic link."""
    target = disk.place / "store"
    target.mkdir()
    path.symlink_to(target)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_what_a_copy_has_acknowledged_outlives_its_disk(
    pair: Pair, disk: Disk, tmp_path: Path, rounds: int
) -> None:
    place(disk, pair.copy)
    pair.start_master()
    for number in range(rounds):
        pair.start_slave()
        pair.await_puts(100)
        acknowledged = pair.acknowledged[:]
        disk.cut()
        pair.kill_slave()
        disk.unmount()
        disk.mount()
        rebooted(pair.copy)
        copy_store(pair.copy, tmp_path / f"promoted-{number}")
        lakelog.promote(tmp_path / f"promoted-{number}")
        pair.check(tmp_path / f"promoted-{number}", acknowledged)
    pair.start_slave()
    pair.await_puts(20)
    pair.kill_master()
    pair.kill_slave()
    check_equal(pair)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_copy_is_never_ahead_of_what_its_master_kept(pair: Pair, disk: Disk, rounds: int) -> None:
    place(disk, pair.master)
    pair.start_master()
    pair.start_slave()
    for _ in range(rounds):
        pair.await_puts(100)
        disk.cut()
        pair.kill_master()
        disk.unmount()
        disk.mount()
        rebooted(pair.master)
        pair.start_master()
    pair.await_puts(20)
    pair.kill_master()
    pair.kill_slave()
    assert "differs" not in (pair.folder / "out").read_text()
    check_equal(pair)


def check_equal(pair: Pair) -> None:
    """Check that the logs have the same bytes, up to the end of the shorter one."""
    end = min(size_of(pair.master), size_of(pair.copy))
    assert end
    assert log_of(pair.copy, end) == log_of(pair.master, end)


# --- full disks ---


@pytest.fixture(params=["tmpfs", "ext4", "xfs"])
def full_soon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with small(request.param, tmp_path) as place:
        yield place


@pytest.mark.sample(4)
@pytest.mark.parametrize("segments", [0, 1, 8])
def test_a_copy_waits_for_room_and_goes_on(tmp_path: Path, full_soon: Path, segments: int) -> None:
    log, path = make_log(tmp_path / "master", COUNT), full_soon / "copy"
    few = len(log) // 30
    with (
        ScriptedMaster(log[:few], segment_bytes=SEGMENT) as master,
        replica(path, master.address) as store,
    ):
        until(lambda: few - store.max_offset < 1000)
        assert store.wait_dispatched()
        eaten, before = eat(full_soon, segments * SEGMENT), len(master.asked)
        master.append(log[few:])
        master.await_connections(before + 3)  # the replica fails and reconnects
        assert failure(store) is None
        assert store.max_offset < master.end
        assert not store.max_offset % SEGMENT
        assert log_of(path, store.max_offset) == log[: store.max_offset]
        eaten.unlink()
        until(lambda: store.max_offset == master.end)
        until(lambda: store.flushed_offset == master.end)
        if store.dispatch_failure is not None:  # queues or index had no room
            store.resume_dispatch()
        assert store.wait_dispatched()
        assert len(bodies(store)) == COUNT == sum(map(len, queued(store).values()))
    assert log_of(path, len(log)) == log


@pytest.mark.sample(1)
@pytest.mark.parametrize("segments", [1, 8])
def test_a_full_disk_under_one_of_several_copies_stops_no_other(
    tmp_path: Path, full_soon: Path, segments: int
) -> None:
    logs = {name: make_log(tmp_path / f"master-{name}", COUNT) for name in "ab"}
    few, folder = len(logs["a"]) // 30, tmp_path / "copies"
    folder.mkdir()
    (full_soon / "a").mkdir()
    (folder / "a").symlink_to(full_soon / "a")
    with (
        ScriptedMaster(logs["a"][:few], segment_bytes=SEGMENT) as full,
        ScriptedMaster(logs["b"][:few], segment_bytes=SEGMENT) as other,
        program(
            folder, "replicate", "--from", f"a={full.address}", "--from", f"b={other.address}"
        ) as copying,
    ):
        reaches(folder / "a", few - 1000)
        reaches(folder / "b", few - 1000)
        until(lambda: "receives from" in said_of(folder / "a"))  # its status file exists
        eaten = eat(full_soon, segments * SEGMENT + STATUS_BYTES)
        full.append(logs["a"][few:])
        until(lambda: "no room for" in said_of(folder / "a"))
        other.append(logs["b"][few:])
        reaches(folder / "b", other.end)
        pid = copying.row("b")["pid"]
        assert "no room for" in said_of(folder / "a")
        end = end_of(folder / "a")
        assert end < full.end
        eaten.unlink()
        reaches(folder / "a", full.end)
        until(lambda: "no room for" not in said_of(folder / "a"))
        until(lambda: copying.row("a")["health"] == copying.row("b")["health"] == "ok")
        assert copying.row("b")["pid"] == pid
        assert copying.row("b")["restarts"] == 0
        assert copying.stop() == 0, copying.said()
    for name, log in logs.items():
        assert log_of(folder / name, len(log)) == log
        lakelog.recover(folder / name)
        with lakelog.open(folder / name, mode="read") as store:
            assert len(bodies(store)) == COUNT == sum(map(len, queued(store).values()))


def said_of(copy: Path) -> str:
    """Return the message of a copy's status, as `lakelog replication status` prints it."""
    lags = copy_lags(copy)
    return "" if lags is None else str(lags["says"])
