"""What puts wait for: enough slaves, by address; not learners, not liars, not for ever."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from lakelog.errors import StoreFailed
from lakelog.hooks import Outcome
from lakelog.results import PutStatus
from lakelog_replication.master.replicator import HaMaster
from lakelog_testing import FakeReplicatedLog, ScriptedSlave
from lakelog_testing.threads import settle
from plugins.replication.tests.masters import SLOW_MS, eventually, serving, slave

TWO: Final[dict[str, Any]] = {"in_sync_replicas": 2, "slave_timeout_ms": SLOW_MS}


@pytest.fixture
def log(tmp_path: Path) -> FakeReplicatedLog:
    return FakeReplicatedLog(tmp_path / "commitlog")


def connect(
    stack: ExitStack, master: HaMaster, log: FakeReplicatedLog, *sources: str
) -> Sequence[ScriptedSlave]:
    """Slaves that have the whole log."""
    peers = []
    for source in sources or ("127.0.0.1",):
        peer = stack.enter_context(slave(master, source))
        peer.report(log.appended)
        peer.end = log.appended
        peers.append(peer)
    return peers


def is_open(outcome: Outcome) -> bool:
    return not isinstance(outcome, PutStatus) and not outcome.done()


def test_without_a_slave_a_put_is_told_at_once(log: FakeReplicatedLog, tmp_path: Path) -> None:
    with serving(log, tmp_path, **TWO) as master:
        assert master.submit(log.append(), wait=True) is PutStatus.SLAVE_NOT_AVAILABLE
        assert master.submit(log.append(), wait=False) is PutStatus.PUT_OK


def test_a_slave_too_far_behind_counts_as_absent(log: FakeReplicatedLog, tmp_path: Path) -> None:
    log.append(5000)
    with serving(log, tmp_path, **TWO, max_gap_bytes=1000) as master, ExitStack() as stack:
        (peer,) = connect(stack, master, log)
        eventually(lambda: log.copies.reachable_end == 5000)
        assert is_open(near := master.submit(log.append(1000), wait=True))
        assert master.submit(log.append(1), wait=True) is PutStatus.SLAVE_NOT_AVAILABLE
        peer.bytes_up_to(6001)
        assert settle(near) is PutStatus.PUT_OK
        assert is_open(master.submit(log.append(1), wait=True))


def test_a_put_is_answered_by_the_report_that_covers_it(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    with serving(log, tmp_path, **TWO) as master, ExitStack() as stack:
        (peer,) = connect(stack, master, log)
        eventually(lambda: log.copies.reachable_end == 0)
        first, second = (master.submit(log.append(), wait=True) for _ in range(2))
        peer.bytes_up_to(200, report=False)
        peer.report(199)
        assert settle(first) is PutStatus.PUT_OK
        assert is_open(second)
        peer.report(200)
        assert settle(second) is PutStatus.PUT_OK
        assert log.copies.end == 200


def test_a_put_is_answered_when_enough_slaves_have_it(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    more = {"in_sync_replicas": 3, "slave_timeout_ms": SLOW_MS}
    with serving(log, tmp_path, **more) as master, ExitStack() as stack:
        fast, slow = connect(stack, master, log, "127.0.0.1", "127.0.0.2")
        eventually(lambda: log.copies.reachable_end == 0)
        outcome = master.submit(log.append(), wait=True)
        fast.bytes_up_to(100)
        slow.bytes_up_to(100, report=False)
        slow.report(99)
        eventually(lambda: log.copies.reachable_end > 0)
        assert log.copies.reachable_end == 99
        assert is_open(outcome)
        slow.report(100)
        assert settle(outcome) is PutStatus.PUT_OK


def test_a_put_waits_for_its_time_only(log: FakeReplicatedLog, tmp_path: Path) -> None:
    with (
        serving(log, tmp_path, in_sync_replicas=2, slave_timeout_ms=30) as master,
        ExitStack() as stack,
    ):
        (peer,) = connect(stack, master, log)
        eventually(lambda: log.copies.reachable_end == 0)
        assert settle(master.submit(log.append(), wait=True)) is PutStatus.FLUSH_SLAVE_TIMEOUT
        peer.bytes_up_to(100)
        eventually(lambda: log.copies.end == 100)
        assert master.submit(100, wait=True) is PutStatus.PUT_OK


@pytest.mark.parametrize(
    ("sources", "answered"),
    [
        (("127.0.0.1", "127.0.0.2"), True),
        (("127.0.0.1", "127.0.0.1"), False),  # one machine
        (("127.0.0.1", "127.0.0.5"), False),  # a learner
        (("127.0.0.1", "127.0.0.5", "127.0.0.2"), True),
    ],
)
def test_copies_are_counted_by_address_without_learners(
    log: FakeReplicatedLog, tmp_path: Path, sources: Sequence[str], *, answered: bool
) -> None:
    more = {"in_sync_replicas": 3, "slave_timeout_ms": SLOW_MS, "learners": ("127.0.0.5",)}
    with serving(log, tmp_path, **more) as master, ExitStack() as stack:
        peers = connect(stack, master, log, *sources)
        end = log.append()
        for peer in peers:
            peer.bytes_up_to(end)
        if answered:
            eventually(lambda: log.copies.end == end)
            assert settle(master.submit(end, wait=True)) is PutStatus.PUT_OK
        else:
            assert settle(master.submit(end, wait=True)) is PutStatus.SLAVE_NOT_AVAILABLE


def test_the_word_copied_never_goes_back(log: FakeReplicatedLog, tmp_path: Path) -> None:
    with serving(log, tmp_path, **TWO) as master, ExitStack() as stack:
        (peer,) = connect(stack, master, log)
        peer.bytes_up_to(log.append(1000))
        eventually(lambda: log.copies.end == 1000)
        peer.close()
        eventually(lambda: log.copies.reachable_end == -1)
        assert log.copies.end == 1000
        assert master.submit(1000, wait=True) is PutStatus.PUT_OK
        assert master.submit(1001, wait=True) is PutStatus.SLAVE_NOT_AVAILABLE


def test_where_no_put_waits_for_the_disk_the_replicator_syncs_for_them(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    with serving(log, tmp_path, **TWO, send="flushed") as master, ExitStack() as stack:
        (peer,) = connect(stack, master, log)
        eventually(lambda: log.copies.reachable_end == 0)
        outcome = master.submit(log.append(), wait=True)
        assert peer.bytes_up_to(100) == log.bytes
        assert settle(outcome) is PutStatus.PUT_OK
        log.break_disk()
        with pytest.raises(StoreFailed):
            settle(master.submit(log.append(), wait=True))


def test_where_puts_wait_for_the_disk_it_leaves_the_syncs_to_the_flush_strategy(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    log.waits_for_disk = True
    more = {"in_sync_replicas": 2, "slave_timeout_ms": 50, "send": "flushed"}
    with serving(log, tmp_path, **more) as master, ExitStack() as stack:
        connect(stack, master, log)
        eventually(lambda: log.copies.reachable_end == 0)
        assert settle(master.submit(log.append(), wait=True)) is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert log.syncs == 0
