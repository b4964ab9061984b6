"""A replica and a master that does what it may do, and what it must not do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakelog
from lakelog.errors import PutRefused, SettingsError, StoreError, StoreLocked, StoreReadOnly
from lakelog_testing.scripted import FRAME, ScriptedMaster
from plugins.replication.tests.replica.copies import (
    SEGMENT,
    bodies,
    log_of,
    make_log,
    queued,
    replica,
    stopped,
    synced_end,
    until,
)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[ScriptedMaster]:
    """A master with three segments, and a part of the fourth."""
    with ScriptedMaster(make_log(tmp_path / "master", 240), segment_bytes=SEGMENT) as made:
        yield made


@pytest.mark.parametrize(
    ("piece_bytes", "frame_bytes"),
    [(0, None), (1, None), (11, None), (4099, None), (0, 1), (0, 5), (0, 90), (0, 32768)],
)
def test_a_copy_has_the_same_bytes_queues_and_index(
    tmp_path: Path, piece_bytes: int, frame_bytes: int | None
) -> None:
    """Pieces are what comes at once; frames end inside of records."""
    is_slow = piece_bytes == 1 or frame_bytes in (1, 5)
    log = make_log(tmp_path / "master", 9 if is_slow else 240)
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:
        master.piece_bytes = piece_bytes
        master.frame_bytes = frame_bytes or master.frame_bytes
        with replica(tmp_path / "copy", master.address) as store:
            until(lambda: store.max_offset == master.end)
            assert store.wait_dispatched()
            assert store.role == "replica"
            with lakelog.open(tmp_path / "master", mode="read") as original:
                assert bodies(store) == bodies(original)
                assert queued(store) == queued(original)
                found = [each.physical_offset for each in store.query("orders", "k7")]
                assert found == [each.physical_offset for each in original.query("orders", "k7")]
    assert log_of(tmp_path / "copy", len(log)) == log


def test_readers_stop_at_whole_records(tmp_path: Path, master: ScriptedMaster) -> None:
    whole = master.end
    more = make_log(tmp_path / "master", 1, first=240)[whole:]
    with replica(tmp_path / "copy", master.address) as store:
        until(lambda: store.max_offset == whole)
        with lakelog.open(tmp_path / "copy", mode="read") as reader:
            for at in range(0, len(more), 37):
                master.append(more[at : at + 37])
                assert reader.max_offset in {whole, master.end}
            until(lambda: reader.max_offset == master.end)
            assert bodies(reader)[-1] == (240).to_bytes(4) * 175


def test_each_connection_begins_with_bytes_that_are_here(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    with replica(tmp_path / "copy", master.address) as store:
        until(lambda: store.max_offset == master.end)
        last = [each.physical_offset for each in store.scan()][-1]
        before = len(master.asked)
        master.disconnect()
        master.await_connections(before + 1)
        assert master.asked[-1] == last
    with replica(tmp_path / "copy", master.address):
        master.await_connections(before + 2)
        assert master.asked[-1] == last


def test_a_learner_repeats_its_first_report_and_others_report_what_is_synced(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    with replica(tmp_path / "learner", master.address, heartbeat_interval_ms=10) as store:
        until(lambda: store.max_offset == master.end)
        heard = len(master.reports)
        until(lambda: len(master.reports) > heard + 3)
        assert set(master.reports[1:]) == {1}
    with replica(tmp_path / "counted", master.address, learner=False) as store:
        master.await_report(master.end)
        assert synced_end(store) == master.end
        until(lambda: store.flushed_offset == master.end)


def test_puts_are_refused_in_every_way(tmp_path: Path, master: ScriptedMaster) -> None:
    message = lakelog.Message("orders", b"mine")
    with replica(tmp_path / "copy", master.address) as store:
        producer = store.producer("orders")
        for put in (
            lambda: store.put(message),
            lambda: store.put_batch([message]),
            lambda: store.put_async(message),
            lambda: producer.put(b"mine"),
        ):
            with pytest.raises(PutRefused, match="only its master fills"):
                put()
        assert not store.is_writable
        with pytest.raises(StoreLocked, match="replica"):
            lakelog.open(tmp_path / "copy")
        until(lambda: store.max_offset == master.end)
    with pytest.raises(StoreReadOnly, match="lakelog promote"):
        lakelog.open(tmp_path / "copy")
    assert log_of(tmp_path / "copy", master.end) == log_of(tmp_path / "master", master.end)


def test_the_mode_and_the_replicator_must_agree(tmp_path: Path, master: ScriptedMaster) -> None:
    with pytest.raises(SettingsError, match="needs a replicator that receives"):
        lakelog.open(tmp_path / "copy", mode="replica")
    section = {"role": "slave", "master": master.address}
    with pytest.raises(SettingsError, match="mode='replica'"):
        lakelog.open(tmp_path / "copy", replicator="rocketmq-ha", rocketmq_ha=section)
    assert not (tmp_path / "copy").exists()


def test_a_promoted_replica_takes_puts_and_continues_the_queues(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    with replica(tmp_path / "copy", master.address, vouch="age") as store:
        until(lambda: store.max_offset == master.end)
    report = lakelog.promote(tmp_path / "copy")
    assert report.end_offset == master.end
    with lakelog.open(tmp_path / "copy") as store:
        assert store.flushed_offset == master.end
        with lakelog.open(tmp_path / "master") as original:
            for queue in range(4):
                message = lakelog.Message("orders", b"next", queue_id=queue)
                assert store.put(message).queue_offset == original.put(message).queue_offset
    with pytest.raises(StoreError, match="no replica"):
        lakelog.promote(tmp_path / "copy")


def test_settings_that_lack_an_address_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"rocketmq-ha\.master"):
        replica(tmp_path / "copy", "").__enter__()
    with pytest.raises(SettingsError, match=r"rocketmq-ha\.broker"):
        replica(tmp_path / "copy", "127.0.0.1:1", vouch="flushed").__enter__()


# --- where a copy begins ---


def test_a_copy_begins_at_the_last_segment_if_that_is_asked_for(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    with replica(tmp_path / "copy", master.address, history="last") as store:
        until(lambda: store.max_offset == master.end)
        assert store.min_offset == master.end - master.end % SEGMENT
        assert store.wait_dispatched()
        assert len(bodies(store)) < 240
    with replica(tmp_path / "copy", master.address) as store:
        assert store.min_offset == master.end - master.end % SEGMENT
        assert bodies(store)


def test_a_master_that_is_not_there_is_an_error_at_the_first_open_only(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    with replica(tmp_path / "copy", master.address) as store:
        until(lambda: store.max_offset == master.end)
    master.close()
    with pytest.raises(StoreError, match="cannot be asked where to begin"):
        replica(tmp_path / "new", master.address).__enter__()
    with replica(tmp_path / "copy", master.address) as store:
        assert len(bodies(store)) == 240


def test_another_segment_size_is_found(tmp_path: Path) -> None:
    for size in (SEGMENT // 2, SEGMENT * 2):
        path = tmp_path / f"{size}"
        with lakelog.open(path, segment_size_bytes=size) as store:
            for _ in range(240):
                store.put(lakelog.Message("orders", b"x" * 700))
            end = store.max_offset
        with ScriptedMaster(log_of(path, end), segment_bytes=size) as master:
            error = stopped(tmp_path / f"copy-{size}", master.address)
        assert f"segments have {SEGMENT} bytes here" in str(error)
        assert not error.is_mended


# --- what is no protocol ---


def test_a_connection_with_wrong_frames_is_made_anew(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    wrong = [FRAME.pack(1, -1), FRAME.pack(1, (4 << 20) + 1), FRAME.pack(-1, 0)]
    wrong += [FRAME.pack(77, 3) + b"abc", b"SSH-2.0-OpenSSH_9.2p1\r\n", b""]

    def spoil(sock: socket.socket, _asked: int) -> bool:
        if wrong:
            sock.sendall(wrong.pop())
            return False
        return True

    with replica(tmp_path / "copy", master.address) as store:
        until(lambda: store.max_offset == master.end)
        before = len(master.asked) + len(wrong)
        master.script = spoil
        master.disconnect()
        master.await_connections(before + 1)
        master.append(make_log(tmp_path / "master", 5, first=240)[master.end :])
        until(lambda: store.max_offset == master.end)
        assert len(bodies(store)) == 245


def test_a_silent_master_is_left(tmp_path: Path, master: ScriptedMaster) -> None:
    with replica(tmp_path / "copy", master.address, silence_timeout_ms=50) as store:
        until(lambda: store.max_offset == master.end)
        master.beats = False
        before = len(master.asked)
        master.await_connections(before + 1)


def test_bytes_that_are_no_record_stop_the_copy_before_them(tmp_path: Path) -> None:
    log = bytearray(make_log(tmp_path / "master", 240))
    with lakelog.open(tmp_path / "master", mode="read") as store:
        place = [each.physical_offset for each in store.scan()][100]
    log[place + 200] ^= 1
    with ScriptedMaster(bytes(log), segment_bytes=SEGMENT) as master:
        error = stopped(tmp_path / "copy", master.address)
    assert error.offset == place
    assert not error.is_mended
    with lakelog.open(tmp_path / "copy", mode="read") as reader:
        assert len(bodies(reader)) == 100
