"""A replica on a disk that is full: it waits, keeps what it has, and goes on when there is room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from lakelog_testing.scriptedmaster import ScriptedMaster
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
from tests.faults.disks import made
from tests.support.smalldisk import tmpfs

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]
COUNT: Final = 3000


@pytest.fixture(params=["tmpfs", "ext4", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    if request.param == "tmpfs":
        with tmpfs(tmp_path, 48 << 20) as place:
            yield place
    else:
        with made(request.param, tmp_path) as mounted:
            yield mounted.place


def eat(disk: Path, room_bytes: int) -> Path:
    """Leave only so much room; return the file that takes the rest."""
    eaten, piece, at = disk / "eaten", 1 << 20, 0
    with eaten.open("wb") as file:
        while piece >= 4096:
            try:
                os.posix_fallocate(file.fileno(), at, piece)
                at += piece
            except OSError:
                piece //= 2
        file.truncate(at - room_bytes)
    return eaten


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
        master.await_connections(before + 3)  # it is refused, and tries again
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
