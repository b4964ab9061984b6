"""Replicas on a full disk wait, keep their records, and continue when there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog_cli.copylags import copy_lags
from lakelog_testing.scriptedmaster import ScriptedMaster
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
from tests.faults.disks import eat, small

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]
COUNT: Final = 3000
STATUS_BYTES: Final = 48 << 10
"""Enough for the small files of a copy, but not for a segment."""


@pytest.fixture(params=["tmpfs", "ext4", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with small(request.param, tmp_path) as place:
        yield place


@pytest.mark.sample(4)
@pytest.mark.parametrize("segments", [0, 1, 8])
def test_a_copy_waits_for_room_and_goes_on(tmp_path: Path, disk: Path, segments: int) -> None:
    log, path = make_log(tmp_path / "master", COUNT), disk / "copy"
    few = len(log) // 30
    with (
        ScriptedMaster(log[:few], segment_bytes=SEGMENT) as master,
        replica(path, master.address) as store,
    ):
        until(lambda: few - store.max_offset < 1000)
        assert store.wait_dispatched()
        eaten, before = eat(disk, segments * SEGMENT), len(master.asked)
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
    tmp_path: Path, disk: Path, segments: int
) -> None:
    logs = {name: make_log(tmp_path / f"master-{name}", COUNT) for name in "ab"}
    few, folder = len(logs["a"]) // 30, tmp_path / "copies"
    folder.mkdir()
    (disk / "a").mkdir()
    (folder / "a").symlink_to(disk / "a")
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
        eaten = eat(disk, segments * SEGMENT + STATUS_BYTES)
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
