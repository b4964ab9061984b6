"""Contract tests for replicators, with and without reachable copies."""

from __future__ import annotations

import pytest

from lakelog.interfaces import Outcome, Replicator
from lakelog.registry import check_object
from lakelog.status import PutStatus
from lakelog_testing.fakelog import FakeLog
from lakelog_testing.threads import PATIENCE_SECONDS, beside, no_thread_left, running, settle


class ReplicatorContract:
    """Subclass it and define :meth:`make`; each test creates its own replicator."""

    patience_seconds: float = PATIENCE_SECONDS
    """Time limit of a test for an expected event."""

    def make(self) -> Replicator:
        """Create a replicator that is not started."""
        raise NotImplementedError

    @pytest.fixture
    def log(self) -> FakeLog:
        """A log whose syncs can be stalled and broken."""
        return FakeLog()

    def settle(self, outcome: Outcome) -> PutStatus:
        """The final status of an outcome; fails on timeout."""
        return settle(outcome, self.patience_seconds)

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), Replicator) is None

    def test_it_starts_and_closes_without_appends(self, log: FakeLog) -> None:
        with no_thread_left(self.patience_seconds), running(self.make(), log):
            pass

    def test_every_put_gets_a_status_of_a_message_that_is_in_the_log(self, log: FakeLog) -> None:
        with running(self.make(), log) as replicator:
            for wait in (True, False) * 5:
                assert self.settle(replicator.submit(log.append(), wait)).in_log

    def test_a_put_that_does_not_wait_is_not_held_up(self, log: FakeLog) -> None:
        with (
            running(self.make(), log) as replicator,
            beside(lambda: replicator.submit(log.append(), wait=False)) as call,
        ):
            call.result(self.patience_seconds)

    def test_close_leaves_no_waiter_and_no_thread(self, log: FakeLog) -> None:
        with no_thread_left(self.patience_seconds):
            with running(self.make(), log) as replicator:
                outcomes = [replicator.submit(log.append(), wait=True) for _ in range(3)]
            for outcome in outcomes:
                assert settle(outcome, 0).in_log
