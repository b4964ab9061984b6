"""A live replica lands in a table only messages that the master cannot lose."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakelog
from lakelog_testing.copies import copy_store
from lakelog_testing.scriptedmaster import ScriptedMaster
from plugins.replication.tests.replica.copies import SEGMENT, make_log, until
from tests.replication.tables import Table

pytestmark = pytest.mark.timeout(300)
PATIENCE_SECONDS = 120.0


@contextmanager
def replicate(
    path: Path, master: ScriptedMaster, table: Table, *more: str, code: int = 0
) -> Iterator[None]:
    """Run ``lakelog replicate`` into a table; check that it ends with ``code``."""
    command = [
        *(sys.executable, "-m", "lakelog", "replicate", str(path), "--from", master.address),
        *(*table.words, "--set", f"segment_size_bytes={SEGMENT}", *more),
        *("--set", "rocketmq-ha.reconnect_interval_ms=100"),
    ]
    with (path.parent / "out").open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == code, (path.parent / "out").read_text()[-3000:]


def offsets(store: Path) -> list[int]:
    """Return the physical offsets of all messages of a store."""
    with lakelog.open(store, mode="read") as reader:
        return [each.physical_offset for each in reader.scan()]


def end_of(copy: Path) -> int:
    """Return the end offset of the copy."""
    try:
        with lakelog.open(copy, mode="read") as reader:
            return reader.max_offset
    except lakelog.LakelogError:
        return -1


def test_a_table_never_has_what_the_master_took_back(tmp_path: Path) -> None:
    begun = make_log(tmp_path / "master", 40)
    shared = make_log(tmp_path / "master", 20, first=40)
    copy_store(tmp_path / "master", tmp_path / "former")
    taken_back = make_log(tmp_path / "former", 30, first=60)
    right = make_log(tmp_path / "master", 80, first=9000)
    copy, lake = tmp_path / "copy", Table(tmp_path / "lake")
    with ScriptedMaster(begun, segment_bytes=SEGMENT) as master:
        with replicate(copy, master, lake, "--vouch", "received"):
            lake.await_rows(40)
            master.append(shared[len(begun) :])
            lake.await_rows(60)
        master.append(taken_back[len(shared) :])
        with replicate(copy, master, lake, "--set", "rocketmq-ha.vouch_age_ms=3600000"):
            until(lambda: end_of(copy) == master.end, PATIENCE_SECONDS)
            master.set_back(len(shared), right[len(shared) :])
            until(lambda: end_of(copy) == len(right), PATIENCE_SECONDS)
            assert len(lake.offsets()) == 60
        with replicate(copy, master, lake, "--vouch", "received"):
            lake.await_rows(140)
    assert lake.offsets() == offsets(tmp_path / "master") == offsets(copy)


def test_rows_that_a_master_took_back_are_replaced_by_hand(tmp_path: Path) -> None:
    """The procedure of the error: cut the copy, remove these rows, and continue."""
    shared = make_log(tmp_path / "master", 60)
    copy_store(tmp_path / "master", tmp_path / "former")
    taken_back = make_log(tmp_path / "former", 30, first=60)
    right = make_log(tmp_path / "master", 80, first=9000)
    copy, lake, cut = tmp_path / "copy", Table(tmp_path / "lake"), len(shared)
    with ScriptedMaster(taken_back, segment_bytes=SEGMENT) as master:
        with replicate(copy, master, lake, "--vouch", "received"):
            lake.await_rows(90)
        master.set_back(cut, right[cut:])
        with replicate(copy, master, lake, "--vouch", "received", code=4):
            until(lambda: "has taken back" in (tmp_path / "out").read_text(), PATIENCE_SECONDS)
        assert (
            f"rows with physical offsets from {cut} to {len(taken_back)}"
            in (tmp_path / "out").read_text()
        )
        assert len(lake.offsets()) == 90
        lakelog.cut_replica(copy, cut)
        rewind = ("lake", "rewind", str(copy), "--to", lake.to, "--yes", *lake.named)
        subprocess.run([sys.executable, "-m", "lakelog", *rewind], check=True)
        assert len(lake.offsets()) == 60
        with replicate(copy, master, lake, "--vouch", "received"):
            lake.await_rows(140)
    assert lake.offsets() == offsets(tmp_path / "master") == offsets(copy)
