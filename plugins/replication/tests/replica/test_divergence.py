"""A master that was set back: what does not count as durable is cut, and nothing else."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import lakelog
from lakelog_testing.samples import copy_store
from lakelog_testing.scripted import FRAME, ScriptedMaster
from plugins.replication.tests.replica.copies import (
    SEGMENT,
    bodies,
    failure,
    log_of,
    make_log,
    queued,
    replica,
    stopped,
    until,
)
from tests.support.sampling import chance

LONG_MS = 3_600_000


def two_logs(tmp_path: Path, common: int, first: int, second: int) -> tuple[bytes, bytes, int]:
    """Two logs that begin with the same messages, and where they part."""
    shared = make_log(tmp_path / "one", common)
    copy_store(tmp_path / "one", tmp_path / "two")
    one = make_log(tmp_path / "one", first, first=common)
    two = make_log(tmp_path / "two", second, first=50_000)
    return one, two, len(shared)


def copied(path: Path, master: ScriptedMaster, *, durable: bool) -> None:
    """Copy what the master has; it counts as durable or not."""
    vouch = "received" if durable else "age"
    with replica(path, master.address, vouch=vouch, vouch_age_ms=LONG_MS) as store:
        until(lambda: store.max_offset == master.end)
        if durable:
            until(lambda: store.flushed_offset == master.end)


OTHERS = (60, 20), (20, 0), (150, 150), (1, 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [(20, 60), *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS)],
)
def test_what_is_not_durable_is_cut_and_received_again(
    tmp_path: Path, first: int, second: int
) -> None:
    one, two, parted = two_logs(tmp_path, 100, first, second)
    with ScriptedMaster(one[:parted], segment_bytes=SEGMENT) as master:
        copied(tmp_path / "copy", master, durable=True)
        master.append(one[parted:])
        copied(tmp_path / "copy", master, durable=False)
        master.set_back(parted, two[parted:])
        error = stopped(tmp_path / "copy", master.address)
        assert (error.offset, error.is_mended) == (parted, True)
        with replica(tmp_path / "copy", master.address) as store:
            until(lambda: store.max_offset == master.end)
            assert store.wait_dispatched()
            with lakelog.open(tmp_path / "two", mode="read") as right:
                assert bodies(store) == bodies(right)
                assert queued(store) == queued(right)
    assert log_of(tmp_path / "copy", len(two)) == two
    assert any((tmp_path / "copy/lakelog/quarantine").iterdir())


def test_another_length_is_cut_and_received_again(tmp_path: Path) -> None:
    test_what_is_not_durable_is_cut_and_received_again(tmp_path, *chance().choice(OTHERS))


def test_a_copy_is_cut_once(tmp_path: Path) -> None:
    one, two, parted = two_logs(tmp_path, 20, 5, 30)
    with ScriptedMaster(one, segment_bytes=SEGMENT) as master:
        copied(tmp_path / "copy", master, durable=False)
        master.set_back(parted, two[parted:])
        assert stopped(tmp_path / "copy", master.address).is_mended
        copied(tmp_path / "copy", master, durable=True)
        with replica(tmp_path / "copy", master.address) as store:
            assert store.recovery is not None
            assert store.recovery.end_offset == len(two)
            assert store.flushed_offset == len(two)


def test_a_noted_cut_counts_if_the_master_has_another_address(tmp_path: Path) -> None:
    one, two, parted = two_logs(tmp_path, 20, 5, 30)
    with ScriptedMaster(one, segment_bytes=SEGMENT) as master:
        copied(tmp_path / "copy", master, durable=False)
        master.set_back(parted, two[parted:])
        assert stopped(tmp_path / "copy", master.address).is_mended
    with (
        ScriptedMaster(two, segment_bytes=SEGMENT) as master,
        replica(tmp_path / "copy", master.address) as store,
    ):
        until(lambda: failure(store) is not None or store.max_offset == master.end)
        assert failure(store) is None
    assert log_of(tmp_path / "copy", len(two)) == two


def test_what_is_durable_is_never_cut_quietly(tmp_path: Path) -> None:
    one, two, parted = two_logs(tmp_path, 100, 20, 60)
    with ScriptedMaster(one, segment_bytes=SEGMENT) as master:
        copied(tmp_path / "copy", master, durable=True)
        master.set_back(parted, two[parted:])
        for _ in range(2):
            error = stopped(tmp_path / "copy", master.address)
            assert (error.offset, error.is_mended) == (parted, False)
            assert f"from {parted} to {len(one)}" in str(error)
            assert log_of(tmp_path / "copy", len(one)) == one
        lakelog.cut_replica(tmp_path / "copy", parted)
        with replica(tmp_path / "copy", master.address) as store:
            until(lambda: store.max_offset == master.end)
    assert log_of(tmp_path / "copy", len(two)) == two


def test_a_master_that_has_deleted_what_is_needed_is_no_divergence(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 400)
    with ScriptedMaster(log[: SEGMENT + 1000], segment_bytes=SEGMENT) as master:
        with replica(tmp_path / "copy", master.address) as store:
            until(lambda: store.max_offset > SEGMENT)
            end = store.max_offset
        master.append(log[SEGMENT + 1000 :])
        master.delete_before(len(log) - len(log) % SEGMENT)
        error = stopped(tmp_path / "copy", master.address)
    assert "deleted" in str(error)
    assert (error.offset, error.is_mended) == (end, False)


def test_a_deleted_front_does_not_hide_where_the_logs_part(tmp_path: Path) -> None:
    one, two, parted = two_logs(tmp_path, 300, 20, 60)
    with ScriptedMaster(one[:parted], segment_bytes=SEGMENT) as master:
        copied(tmp_path / "copy", master, durable=True)
        master.append(one[parted:])
        copied(tmp_path / "copy", master, durable=False)
        master.delete_before(SEGMENT * 2)
        master.set_back(parted, two[parted:])
        error = stopped(tmp_path / "copy", master.address)
    assert (error.offset, error.is_mended) == (parted, True)


@pytest.mark.parametrize(("breaks", "frames"), [(4, 0), (30, 1)])
def test_connections_that_break_off_are_no_divergence(
    tmp_path: Path, breaks: int, frames: int
) -> None:
    """A master of lakelog closes a connection too, but at once, and again and again."""
    log = make_log(tmp_path / "master", 100)
    seen: list[int] = []
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:

        def script(sock: socket.socket, asked: int) -> bool:
            if not asked or len(seen) > breaks:
                return True
            seen.append(asked)
            if len(seen) > 1:  # the first one asks for nothing but the end of the log
                sock.sendall((FRAME.pack(asked, 10) + log[asked : asked + 10]) * frames)
            return False

        with replica(tmp_path / "copy", master.address) as store:
            until(lambda: store.max_offset == master.end)
            master.script = script
            master.disconnect()
            until(lambda: len(seen) > breaks)
            more = make_log(tmp_path / "master", 5, first=100)
            master.append(more[len(log) :])
            until(lambda: failure(store) is not None or store.max_offset == master.end)
            assert failure(store) is None
    assert log_of(tmp_path / "copy", len(more)) == more
