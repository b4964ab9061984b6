"""Contract tests for followers: start, prompt stop, and nothing left behind."""

from __future__ import annotations

from lakelog.interfaces import Follower
from lakelog.registry import check_object
from lakelog_testing.threads import PATIENCE_SECONDS, beside, no_thread_left


class FollowerContract:
    """Subclass it and define :meth:`make`; each test creates its own follower."""

    patience_seconds: float = PATIENCE_SECONDS
    """Time limit of a test for an expected event."""

    def make(self) -> Follower:
        """Create a follower that is not started."""
        raise NotImplementedError

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), Follower) is None

    def test_start_returns_and_does_not_follow_in_the_callers_thread(self) -> None:
        follower = self.make()
        with beside(follower.start) as call:
            call.result(self.patience_seconds)
        follower.stop()

    def test_stop_returns_when_stopped(self) -> None:
        with no_thread_left(self.patience_seconds):
            follower = self.make()
            follower.start()
            with beside(follower.stop) as call:
                call.result(self.patience_seconds)
