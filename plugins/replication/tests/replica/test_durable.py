"""What counts as durable on a copy: open, closed, and killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lakelog
from lakelog_replication.replica.receivable import AgeVoucher
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests.brokers import Asked, brokering, runtime
from plugins.replication.tests.replica.copies import (
    SEGMENT,
    log_of,
    make_log,
    queued,
    replica,
    until,
)
from tests.support import forked

LONG_MS = 3_600_000


def durable(path: Path) -> int:
    with lakelog.open(path, mode="read") as reader:
        assert reader.is_flushed_known
        return reader.flushed_offset


def told(log: bytes, boot_ms: int, behind: int) -> bytes:
    """What a broker says of its log, of which so many bytes are not synced."""
    return runtime(
        bootTimestamp=boot_ms,
        commitLogMinOffset=0,
        commitLogMaxOffset=len(log),
        remainHowManyDataToFlush=f"{behind} B",
    )


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


def test_only_what_the_master_says_that_it_has_synced_is_durable(tmp_path: Path) -> None:
    log, copy = make_log(tmp_path / "master", 100), tmp_path / "copy"
    answers: dict[int, bytes] = {28: told(log, 5, 900)}
    asked: Asked = []
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as master,
        brokering(answers, asked) as broker,
        replica(copy, master.address, vouch="flushed", broker=broker) as store,
    ):
        until(lambda: store.max_offset == master.end)
        until(lambda: store.flushed_offset > 0)
        count = len(master.asked)
        answers[28] = told(log, 6, 0)  # another process, which may have lost what the former had
        before = len(asked)
        until(lambda: len(asked) > before + 8)  # the status asks too, once a second
        assert 0 < store.flushed_offset <= len(log) - 900
        master.disconnect()
        master.await_connections(count + 1)
        until(lambda: store.flushed_offset == master.end)


def test_the_durable_end_is_the_end_of_a_record(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 100)
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as master,
        brokering({28: told(log, 5, 300)}) as broker,  # within the last record
        replica(tmp_path / "copy", master.address, vouch="flushed", broker=broker) as store,
    ):
        until(lambda: store.max_offset == master.end)
        until(lambda: store.flushed_offset > 0)
        assert store.flushed_offset in [each.physical_offset for each in store.scan()]


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


@contextmanager
def replicating(path: Path, master: ScriptedMaster, *more: str) -> Iterator[forked.Forked]:
    """A replica in its own process, which the test may kill."""
    command = [
        *("replicate", str(path), "--from", master.address),
        *("--set", f"segment_size_bytes={SEGMENT}", *more),
    ]
    out = path.parent / "out"
    with forked.start("tests.support.program", command, errors=out) as process:
        try:
            yield process
        finally:
            process.kill()


def reached(path: Path) -> int:
    """The end of a copy that another process has open; -1 before it is one."""
    try:
        with lakelog.open(path, mode="read") as reader:
            return reader.max_offset
    except lakelog.LakelogError:
        return -1


def test_an_end_that_was_published_is_known_after_a_kill(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 200)
    step = len(log) // 10
    with ScriptedMaster(log[:step], segment_bytes=SEGMENT) as master:
        received = ("--vouch", "received", "--set", "rocketmq-ha.sync_interval_ms=1")
        with replicating(tmp_path / "copy", master, *received) as process:
            until(lambda: reached(tmp_path / "copy") > 0)
            with lakelog.open(tmp_path / "copy", mode="read") as reader:
                until(lambda: reader.flushed_offset > 0)
                seen = reader.flushed_offset
                for at in range(step, len(log), step):
                    master.append(log[at : at + step])
                    before = seen
                    until(lambda before=before: reader.flushed_offset > before)  # type: ignore[misc]  # one name
                    seen = reader.flushed_offset
                process.kill()
                process.wait()
        assert durable(tmp_path / "copy") >= seen


def test_a_hole_that_a_power_cut_left_is_received_again_and_not_filled(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 200)
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:
        with replicating(tmp_path / "copy", master) as process:
            until(lambda: reached(tmp_path / "copy") == master.end)
            process.kill()
            process.wait()
        lost = SEGMENT + 10_000
        with (tmp_path / "copy/commitlog" / f"{SEGMENT:020d}").open("r+b") as file:
            file.seek(lost - SEGMENT)
            file.write(bytes(3000))
        with replica(tmp_path / "copy", master.address) as store:
            assert store.recovery is not None
            assert store.recovery.end_offset <= lost
            until(lambda: store.max_offset == master.end)
            assert store.wait_dispatched()
            assert sum(map(len, queued(store).values())) == 200
    assert log_of(tmp_path / "copy", len(log)) == log


def test_readers_of_a_copy_that_waits_for_the_disk_stop_at_the_durable_end(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 50)
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:
        section = {"role": "slave", "master": master.address, "vouch_age_ms": LONG_MS}
        with lakelog.open(
            tmp_path / "copy",
            mode="replica",
            flush="inline",
            replicator="rocketmq-ha",
            rocketmq_ha=section,
            segment_size_bytes=SEGMENT,
        ) as store:
            until(lambda: store._owned is not None and store._owned.positions.appended == len(log))
            assert store.max_offset == 0
            assert store.queues() == []
