"""What counts as durable on a copy: open, closed, and killed."""

from __future__ import annotations

from pathlib import Path

import lakelog
from lakelog_replication.replica.vouching import AgeVoucher
from lakelog_testing.scriptedmaster import ScriptedMaster
from plugins.replication.tests.replica.copies import SEGMENT, make_log, replica, until

LONG_MS = 3_600_000


def durable(path: Path) -> int:
    with lakelog.open(path, mode="read") as reader:
        assert reader.is_flushed_known
        return reader.flushed_offset


def test_nothing_is_durable_before_its_age(tmp_path: Path) -> None:
    with ScriptedMaster(make_log(tmp_path / "master", 100), segment_bytes=SEGMENT) as master:
        with replica(tmp_path / "copy", master.address, vouch="age", vouch_age_ms=LONG_MS) as store:
            until(lambda: store.max_offset == master.end)
            assert store.flush() == 0
            assert durable(tmp_path / "copy") == 0
        assert durable(tmp_path / "copy") == 0  # closed, which proves nothing of the master
        lakelog.recover(tmp_path / "copy")
        assert durable(tmp_path / "copy") == 0
        with replica(tmp_path / "copy", master.address, vouch="age", vouch_age_ms=10) as store:
            assert store.max_offset == master.end
            until(lambda: store.flushed_offset == master.end)
            assert durable(tmp_path / "copy") == master.end
        assert durable(tmp_path / "copy") == master.end


def test_the_age_counts_only_while_the_master_is_heard() -> None:
    voucher = AgeVoucher(10.0)
    voucher.connected(0, 100.0)
    assert voucher.offset(500, 101.0) == 0
    assert voucher.offset(500, 110.9) == 0
    voucher.connected(500, 115.0)  # the master was away, and may have lost what it had sent
    assert voucher.offset(500, 116.0) == 0
    assert voucher.offset(700, 125.0) == 500
    assert voucher.offset(700, 134.9) == 500
    assert voucher.offset(700, 135.0) == 700


def test_what_was_durable_stays_durable_over_an_open(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 100)
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:
        with replica(tmp_path / "copy", master.address) as store:
            until(lambda: store.flushed_offset == master.end)
        before = master.end
        master.append(make_log(tmp_path / "master", 50, first=100)[before:])
        with replica(tmp_path / "copy", master.address, vouch="age", vouch_age_ms=LONG_MS) as store:
            until(lambda: store.max_offset == master.end)
            assert store.flushed_offset == before
        assert durable(tmp_path / "copy") == before
