"""Contract tests for replicators, with and without reachable copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelog.interfaces import LeadingReplicator, Outcome, Replicator
from lakelog.registry import check_object
from lakelog.status import PutStatus
from lakelog_testing.replicatedlog import FakeReplicatedLog
from lakelog_testing.threads import PATIENCE_SECONDS, beside, no_thread_left, running, settle


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
    def leading(self, log: FakeReplicatedLog) -> Iterator[Replicator]:
        """A replicator as in the process that has the services, closed at the end of the block."""
        made = self.make()
        if isinstance(made, LeadingReplicator):
            made.lead()
        with running(made, log) as replicator:
            yield replicator

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), Replicator) is None

    def test_it_starts_and_closes_without_appends(self, log: FakeReplicatedLog) -> None:
        with no_thread_left(self.patience_seconds), self.leading(log):
            pass

    def test_it_starts_and_closes_where_another_process_leads(self, log: FakeReplicatedLog) -> None:
        with no_thread_left(self.patience_seconds), running(self.make(), log):
            pass

    def test_every_put_gets_a_status_of_a_message_that_is_in_the_log(
        self, log: FakeReplicatedLog
    ) -> None:
        with self.leading(log) as replicator:
            for wait in (True, False) * 5:
                assert self.settle(replicator.submit(log.append(), wait)).in_log

    def test_puts_get_a_status_where_another_process_leads(self, log: FakeReplicatedLog) -> None:
        with running(self.make(), log) as replicator:
            for wait in (True, False) * 5:
                assert self.settle(replicator.submit(log.append(), wait)).in_log

    def test_a_put_that_does_not_wait_is_not_held_up(self, log: FakeReplicatedLog) -> None:
        with (
            log.released_behind(),
            log.stalled(),
            self.leading(log) as replicator,
        ):
            with beside(lambda: replicator.submit(log.append(), wait=False)) as call:
                call.result(self.patience_seconds)
            log.release()

    def test_close_leaves_no_waiter_and_no_thread(self, log: FakeReplicatedLog) -> None:
        with no_thread_left(self.patience_seconds):
            with self.leading(log) as replicator:
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
