"""After a power cut of master or slave, acknowledged puts are kept and the logs are equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakelog
from lakelog_testing.copies import copy_store
from plugins.replication.tests.replica.copies import log_of
from plugins.replication.tests.replica.test_kills import Pair, pair, size_of
from tests.faults.disks import Disk, made

__all__ = ["pair"]  # a fixture
pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
ROUNDS = [1, pytest.param(10, marks=pytest.mark.slow)]


@pytest.fixture(params=["ext4", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """Mount a small file system that can be shut down."""
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
