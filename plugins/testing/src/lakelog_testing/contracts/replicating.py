"""Contract tests for replicators with and without reachable copies, and for receivers.

A receiver is a replicator that fills a replica from a master.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelog.errors import PutRefused, StoreError, StoreFailed
from lakelog.format.layout import segment_name
from lakelog.hooks import LeadingReplicator, Outcome, Receiver, Replicator
from lakelog.registry import check_object
from lakelog.results import PutStatus
from lakelog_testing.fakes import SEGMENT_BYTES, FakeReceivedLog, FakeReplicatedLog
from lakelog_testing.samples import encode_log, messages
from lakelog_testing.threads import PATIENCE_SECONDS, beside, no_thread_left, running, settle


class ReceiverContract:
    """Subclass it and define the methods that raise; each test has a master of its own.

    The master is one that the test directs, or a real one. Its log begins at 0, has segments of
    1 MiB, and never fills the first.
    """

    patience_seconds: float = PATIENCE_SECONDS
    """Time limit of a test for an expected event."""

    def begin_master(self, data: bytes) -> None:
        """Begin to serve ``data``; the master is ended after the test, if it still runs."""
        raise NotImplementedError

    def extend_master(self, data: bytes) -> None:
        """Append to the master's log."""
        raise NotImplementedError

    def set_master_back(self, end: int, data: bytes) -> None:
        """Let the master lose its log from ``end`` on, and continue with ``data``."""
        raise NotImplementedError

    def end_master(self) -> None:
        """Stop the master: connections are refused afterwards. May be called twice."""
        raise NotImplementedError

    def make(self) -> Receiver:
        """Create a receiver of the master; it must reconnect within ``patience_seconds``."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _end_the_master(self) -> Iterator[None]:
        yield
        self.end_master()

    @contextmanager
    def receiving(self, log: FakeReceivedLog) -> Iterator[FakeReceivedLog]:
        """Receive into ``log``; no thread may be left after the close."""
        with no_thread_left(self.patience_seconds):
            receiver = self.make()
            assert isinstance(receiver, Replicator)
            receiver.receive_into(log.opened())
            try:
                yield log
            finally:
                receiver.close()

    def records(self, count: int, base_offset: int = 0, topic: str = "orders") -> bytes:
        """Whole records for ``base_offset``."""
        return encode_log(messages(count, topic), base_offset)

    # --- tests ---

    def test_it_has_the_methods_of_its_kind(self) -> None:
        self.begin_master(b"")
        made = self.make()
        assert check_object(made, Replicator) is None
        assert isinstance(made, Receiver)

    def test_a_new_replica_begins_at_a_segment_of_the_master(self, tmp_path: Path) -> None:
        self.begin_master(self.records(10))
        made, commitlog = self.make(), tmp_path / "commitlog"
        for _ in range(2):  # the second open finds it
            made.begin(commitlog)
            (segment,) = commitlog.iterdir()
            assert segment.name == segment_name(0)
            assert segment.stat().st_size == SEGMENT_BYTES

    def test_a_new_replica_without_a_master_is_an_error_of_the_store(self, tmp_path: Path) -> None:
        self.begin_master(self.records(10))
        made, commitlog = self.make(), tmp_path / "commitlog"
        self.end_master()
        with pytest.raises(StoreError):
            made.begin(commitlog)
        assert not commitlog.exists() or not [*commitlog.iterdir()]

    def test_it_receives_what_is_there_and_what_comes(self) -> None:
        first = self.records(50)
        more = self.records(50, len(first))
        self.begin_master(first)
        with self.receiving(FakeReceivedLog()) as log:
            log.await_end(len(first), self.patience_seconds)
            self.extend_master(more)
            log.await_end(len(first + more), self.patience_seconds)
        assert bytes(log.data) == first + more

    def test_a_record_that_is_not_whole_waits_for_its_rest(self) -> None:
        first = self.records(20)
        more = self.records(1, len(first))
        self.begin_master(first)
        with self.receiving(FakeReceivedLog()) as log:
            for at in range(len(more)):
                self.extend_master(more[at : at + 1])
            log.await_end(len(first + more), self.patience_seconds)
        assert bytes(log.data) == first + more

    def test_what_the_master_cannot_lose_becomes_durable(self) -> None:
        data = self.records(50)
        self.begin_master(data)
        with self.receiving(FakeReceivedLog()) as log:
            log.await_flushed(len(data), self.patience_seconds)

    def test_it_continues_where_the_replica_ends(self) -> None:
        there = self.records(50)
        more = self.records(50, len(there))
        self.begin_master(there + more)
        with self.receiving(FakeReceivedLog(there)) as log:
            log.await_end(len(there + more), self.patience_seconds)
        assert bytes(log.data) == there + more

    def test_it_goes_on_after_an_append_that_was_refused_for_now(self) -> None:
        data = self.records(50)
        self.begin_master(data)
        log = FakeReceivedLog()
        log.error = PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
        with self.receiving(log):
            log.await_end(len(data), self.patience_seconds)
        assert bytes(log.data) == data

    def test_a_failed_store_gets_nothing_more(self) -> None:
        first = self.records(20)
        self.begin_master(first)
        log = FakeReceivedLog()
        log.error = StoreFailed("a sync failed", path="/replica")
        with self.receiving(log):
            log.await_error(self.patience_seconds)
        assert bytes(log.data) == b""

    @pytest.mark.parametrize("grows", [False, True])
    def test_a_master_that_was_set_back_is_found_at_a_record(self, grows: bool) -> None:
        shared = self.records(30)
        lost = self.records(20, len(shared))
        other = self.records(60 if grows else 5, len(shared), "other")
        self.begin_master(shared)
        self.set_master_back(len(shared), other)
        with self.receiving(FakeReceivedLog(shared + lost)) as log:
            log.await_stop(self.patience_seconds)
        assert log.differs_at == len(shared)
        assert bytes(log.data) == shared + lost

    def test_a_master_that_is_set_back_while_it_is_followed_is_found(self) -> None:
        shared = self.records(30)
        lost = self.records(20, len(shared))
        self.begin_master(shared + lost)
        with self.receiving(FakeReceivedLog()) as log:
            log.await_end(len(shared + lost), self.patience_seconds)
            self.set_master_back(len(shared), self.records(60, len(shared), "other"))
            log.await_stop(self.patience_seconds)
        assert log.differs_at == len(shared)
        assert bytes(log.data) == shared + lost

    def test_close_ends_it_where_no_master_answers(self) -> None:
        self.begin_master(self.records(10))
        made = self.make()
        assert isinstance(made, Replicator)
        self.end_master()
        with no_thread_left(self.patience_seconds):
            made.receive_into(FakeReceivedLog().opened())
            made.close()

    def test_close_before_the_first_byte_was_asked_for(self) -> None:
        self.begin_master(b"")
        made = self.make()
        assert isinstance(made, Replicator)
        made.close()


LEADS = pytest.mark.parametrize("leads", [True, False])


class ReplicatorContract:
    """Subclass it and define :meth:`make`; each test creates its own replicator."""

    patience_seconds: float = PATIENCE_SECONDS
    """Time limit of a test for an expected event."""

    def make(self) -> Replicator:
        """Create a replicator that is not started."""
        raise NotImplementedError

    @pytest.fixture
    def log(self, tmp_path: Path) -> FakeReplicatedLog:
        """A log with bytes, whose syncs can be stalled and broken."""
        return FakeReplicatedLog(tmp_path / "commitlog")

    def settle(self, outcome: Outcome) -> PutStatus:
        """The final status of an outcome; fails on timeout."""
        return settle(outcome, self.patience_seconds)

    @contextmanager
    def running(self, log: FakeReplicatedLog, *, leads: bool = True) -> Iterator[Replicator]:
        """A replicator, closed at the end of the block.

        :param leads: whether it is in the process that has the services
        """
        made = self.make()
        if leads and isinstance(made, LeadingReplicator):
            made.lead()
        with running(made, log) as replicator:
            yield replicator

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), Replicator) is None

    @LEADS
    def test_it_starts_and_closes_without_appends(
        self, leads: bool, log: FakeReplicatedLog
    ) -> None:
        with no_thread_left(self.patience_seconds), self.running(log, leads=leads):
            pass

    @LEADS
    def test_every_put_gets_a_status_of_a_message_that_is_in_the_log(
        self, leads: bool, log: FakeReplicatedLog
    ) -> None:
        with self.running(log, leads=leads) as replicator:
            for wait in (True, False) * 5:
                assert self.settle(replicator.submit(log.append(), wait)).in_log

    def test_a_put_that_does_not_wait_is_not_held_up(self, log: FakeReplicatedLog) -> None:
        with (
            log.released_behind(),
            log.stalled(),
            self.running(log) as replicator,
        ):
            with beside(lambda: replicator.submit(log.append(), wait=False)) as call:
                call.result(self.patience_seconds)
            log.release()

    def test_close_leaves_no_waiter_and_no_thread(self, log: FakeReplicatedLog) -> None:
        with no_thread_left(self.patience_seconds):
            with self.running(log) as replicator:
                outcomes = [replicator.submit(log.append(), wait=True) for _ in range(3)]
            for outcome in outcomes:
                assert settle(outcome, 0).in_log

    def test_the_lead_moves(self, log: FakeReplicatedLog) -> None:
        with no_thread_left(self.patience_seconds), running(self.make(), log) as replicator:
            if not isinstance(replicator, LeadingReplicator):
                pytest.skip("each process copies its own appends")
            for _ in range(2):
                replicator.lead()
                assert self.settle(replicator.submit(log.append(), wait=True)).in_log
                replicator.stop_leading()
                replicator.stop_leading()
                assert self.settle(replicator.submit(log.append(), wait=True)).in_log

    def test_an_open_that_fails_gives_the_lead_back(self) -> None:
        for _ in range(2):
            made = self.make()
            if isinstance(made, LeadingReplicator):
                made.lead()
                made.stop_leading()
