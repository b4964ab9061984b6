"""The master and slaves of every kind: whole, torn, silent, lying, lost."""

from __future__ import annotations

import logging
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakelog.results import PutStatus
from lakelog_replication.master.replicator import HaMaster
from lakelog_testing import FakeReplicatedLog, ScriptedSlave
from lakelog_testing.threads import settle
from plugins.replication.tests.masters import eventually, make, serving, slave

SEGMENT = 1 << 16
HUGE = (1 << 63) - 1


@pytest.fixture
def log(tmp_path: Path) -> FakeReplicatedLog:
    return FakeReplicatedLog(tmp_path / "commitlog", segment_size_bytes=SEGMENT)


# --- bytes ---


@pytest.mark.parametrize("batch_bytes", [1, 1000, 32 << 10, (4 << 20) - 12])
def test_a_slave_gets_every_byte_in_frames_within_segments(
    log: FakeReplicatedLog, tmp_path: Path, batch_bytes: int
) -> None:
    size = 300 if batch_bytes == 1 else 3 * SEGMENT + 12_345
    log.append(size)
    with serving(log, tmp_path, batch_bytes=batch_bytes) as master, slave(master) as peer:
        peer.report(1)
        got = b""
        while len(got) < size - 1:
            offset, body = peer.frame()
            assert 0 < len(body) <= batch_bytes
            assert offset // SEGMENT == (offset + len(body) - 1) // SEGMENT
            got += body
            peer.report(peer.end)
    assert got == log.bytes[1:]


def test_a_slave_without_a_log_gets_the_last_segment(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    log.append(2 * SEGMENT + 500)
    with serving(log, tmp_path) as master, slave(master) as peer:
        peer.report(0)
        assert peer.bytes_up_to(log.appended) == log.bytes[2 * SEGMENT :]


def test_what_is_appended_later_comes_without_another_report(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    with serving(log, tmp_path, host="") as master, slave(master) as peer:
        peer.report(0)
        for size in (1, 100, SEGMENT, 5):
            end = log.append(size)
            assert peer.bytes_up_to(end, report=False) == log.bytes[end - size :]


def test_only_durable_bytes_are_sent_unless_written_ones_are_asked_for(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    log.append(1000)
    log.sync()
    log.append(500)
    with (
        serving(log, tmp_path, send="flushed", heartbeat_interval_ms=20) as master,
        slave(master) as peer,
    ):
        peer.report(1)
        assert peer.bytes_up_to(1000) == log.bytes[1:1000]
        assert [peer.frame() for _ in range(3)] == [(1000, b"")] * 3
        log.sync()
        assert peer.bytes_up_to(1500) == log.bytes[1000:]


def test_a_heartbeat_comes_where_nothing_else_does(log: FakeReplicatedLog, tmp_path: Path) -> None:
    end = log.append(700)
    with serving(log, tmp_path, heartbeat_interval_ms=5) as master, slave(master) as peer:
        peer.report(end)
        assert [peer.frame() for _ in range(3)] == [(end, b"")] * 3


def test_many_slaves_are_served_side_by_side(log: FakeReplicatedLog, tmp_path: Path) -> None:
    log.append(2 * SEGMENT)
    with serving(log, tmp_path) as master, ThreadPoolExecutor(20) as pool:

        def follow(number: int) -> bytes:
            with slave(master) as peer:
                peer.report(1 + number)
                return peer.bytes_up_to(3 * SEGMENT)

        jobs = [pool.submit(follow, number) for number in range(20)]
        log.append(SEGMENT)
        for number, job in enumerate(jobs):
            assert job.result() == log.bytes[1 + number :]


def test_a_slave_that_reads_nothing_holds_up_no_other(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    log.append(32 * SEGMENT)  # more than the buffers of a socket take
    with serving(log, tmp_path) as master, slave(master) as stuck, slave(master) as peer:
        stuck.report(1)
        peer.report(1)
        assert peer.bytes_up_to(log.appended) == log.bytes[1:]
        assert stuck.bytes_up_to(log.appended) == log.bytes[1:]


# --- reports ---


def test_a_report_may_be_torn_anywhere(log: FakeReplicatedLog, tmp_path: Path) -> None:
    log.append(0x1234)
    data = struct.pack(">q", 0x1000)
    with serving(log, tmp_path) as master:
        for cut in range(1, 8):
            with slave(master) as peer:
                peer.send(data[:cut])
                with slave(master) as other:  # which is answered behind the first half
                    other.report(1)
                    other.frame()
                peer.send(data[cut:])
                assert peer.bytes_up_to(0x1234) == log.bytes[0x1000:]


def test_of_two_reports_at_once_the_first_says_where_to_begin(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    log.append(1000)
    with serving(log, tmp_path) as master, slave(master) as peer:
        peer.report(400, 400)
        assert peer.bytes_up_to(1000) == log.bytes[400:]


def test_a_negative_report_is_as_none(log: FakeReplicatedLog, tmp_path: Path) -> None:
    log.append(1000)
    with serving(log, tmp_path, in_sync_replicas=2) as master, slave(master) as peer:
        peer.report(-1, -(1 << 63), 900)
        assert peer.bytes_up_to(1000) == log.bytes[900:]
        peer.report(-5)
        eventually(lambda: log.copies.end == 1000)


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("first", [1001, HUGE])
def test_a_slave_that_asks_behind_the_end_has_diverged(
    log: FakeReplicatedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, first: int
) -> None:
    log.append(1000)
    with serving(log, tmp_path, in_sync_replicas=2) as master:
        for _ in range(2 if first == HUGE else 1):
            with slave(master) as peer:
                peer.report(first)
                assert peer.is_closed()
                assert log.copies.reachable_end == -1
                outcome = master.submit(log.appended, wait=True)
                assert settle(outcome) is PutStatus.SLAVE_NOT_AVAILABLE
            log.append(10)
    (line,) = refused(caplog)  # it is told of once while the log grows
    assert f"diverged: it has a log up to {first}, and this one ends at 1000" in line


def test_a_slave_that_asks_for_deleted_bytes_is_refused(
    log: FakeReplicatedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(2 * SEGMENT)
    log.remove_first()
    with serving(log, tmp_path) as master:
        for _ in range(2):
            with slave(master) as peer:
                peer.report(SEGMENT - 1)
                assert peer.is_closed()
        with slave(master) as peer:
            peer.report(SEGMENT)
            assert peer.bytes_up_to(2 * SEGMENT) == log.bytes[SEGMENT:]
    assert len(refused(caplog)) == 1, "the second time is for debugging only"
    assert f"which was deleted here; this log begins at {SEGMENT}" in refused(caplog)[0]


def test_a_slave_whose_place_is_deleted_meanwhile_is_refused(
    log: FakeReplicatedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(256 * SEGMENT)  # more than the sockets take
    with serving(log, tmp_path) as master, slave(master) as peer:
        peer.report(1)
        peer.frame()
        for _ in range(255):
            log.remove_first()
        with pytest.raises(EOFError):
            peer.bytes_up_to(log.appended)
    assert len(refused(caplog)) == 1
    assert "was deleted" in refused(caplog)[0]


@pytest.mark.parametrize("claim", [1001, HUGE])
def test_a_report_of_more_than_was_sent_is_refused(
    log: FakeReplicatedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, claim: int
) -> None:
    log.append(1000)
    with serving(log, tmp_path, in_sync_replicas=2) as master, slave(master) as peer:
        peer.report(500)
        peer.bytes_up_to(1000, report=False)
        outcome = master.submit(1000, wait=True)
        peer.report(claim)
        assert peer.is_closed()
        assert settle(outcome) is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert "and was sent it up to" in refused(caplog)[0]


def test_false_reports_of_many_connections_are_one_line(
    log: FakeReplicatedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(100)
    with serving(log, tmp_path) as master:
        for number in range(30):
            with slave(master) as peer:
                peer.report(1000 + number)
                assert peer.is_closed()
    assert len(refused(caplog)) == 1


def test_silent_connections_keep_no_slave_away(
    log: FakeReplicatedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog_replication.master.server._MOST_LINKS", 3)
    log.append(100)
    with serving(log, tmp_path) as master, ExitStack() as open_ones:
        served = open_ones.enter_context(slave(master))
        served.report(1)
        served.bytes_up_to(100)
        for _ in range(9):
            open_ones.enter_context(slave(master))
        assert _is_served(master)
        log.append(10)
        assert served.bytes_up_to(110)


def test_a_slave_that_says_nothing_is_dropped(log: FakeReplicatedLog, tmp_path: Path) -> None:
    log.append(100)
    with serving(log, tmp_path, silence_timeout_ms=50) as master:
        with slave(master) as mute:
            assert mute.is_closed()
        with slave(master) as once:
            once.report(1)
            with pytest.raises(EOFError):
                once.bytes_up_to(1000)


# --- who may connect ---


def test_an_address_that_is_not_allowed_gets_nothing(
    log: FakeReplicatedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(100)
    allow = ("127.0.0.1", "127.1.0.0/16")
    with serving(log, tmp_path, allow=allow) as master:
        for source, is_welcome in (("127.0.0.2", False), ("127.1.2.3", True)):
            with slave(master, source) as peer:
                if is_welcome:
                    peer.report(1)
                    assert peer.bytes_up_to(100) == log.bytes[1:]
                else:
                    assert peer.is_closed()
    assert [each.split(": ")[1] for each in refused(caplog)] == ["slave 127.0.0.2 was refused"]


def test_connections_are_limited(
    log: FakeReplicatedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog_replication.master.server._MOST_LINKS", 3)
    log.append(100)
    with serving(log, tmp_path) as master, ExitStack() as open_ones:
        peers = [open_ones.enter_context(slave(master)) for _ in range(3)]
        for each in peers:
            each.report(1)
            each.bytes_up_to(100)
        with slave(master) as surplus:
            assert surplus.is_closed()
        peers[0].close()
        eventually(lambda: _is_served(master))


def _is_served(master: HaMaster) -> bool:
    with slave(master) as peer:
        try:
            peer.report(1)
            return bool(peer.frame()[1])
        except (EOFError, ConnectionError):
            return False


def test_it_listens_at_loopback_unless_told_otherwise(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    with serving(log, tmp_path) as master, socket.socket() as other:
        assert master.port is not None
        other.bind(("127.0.0.9", master.port))  # which it would not leave free


def test_a_port_that_is_taken_at_a_take_over_is_tried_again(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    log.append(100)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        master = make(tmp_path, port=port, send="written")
        master.start(log)
        master.lead()
    try:
        eventually(lambda: _connects(port))
        with ScriptedSlave(port) as peer:
            peer.report(1)
            assert peer.bytes_up_to(100) == log.bytes[1:]
    finally:
        master.close()


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
