"""The kits for flush strategies accept correct ones, and find each mistake."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty

import pytest

from lakelog.errors import LakelogError
from lakelog.interfaces import FlushStrategy
from lakelog_testing import (
    DurableFlushStrategyContract,
    FakeLog,
    GroupFlushStrategyContract,
    ReplicatorContract,
)
from plugins.testing.tests import groupflushes, strategies


class TestInline(DurableFlushStrategyContract):
    def make(self) -> strategies.Inline:
        return strategies.Inline()


class TestGroup(DurableFlushStrategyContract):
    def make(self) -> strategies.Group:
        return strategies.Group()


class TestTimely(GroupFlushStrategyContract):
    def make(self) -> groupflushes.Timely:
        return groupflushes.Timely()

    def make_hasty(self, timeout_ms: int) -> groupflushes.Timely:
        return groupflushes.Timely(timeout_ms)


class TestAsReplicator(ReplicatorContract):
    def make(self) -> strategies.Group:
        return strategies.Group()


class Hasty(DurableFlushStrategyContract):
    patience_seconds = 0.5
    made: Callable[[], FlushStrategy]

    def make(self) -> FlushStrategy:
        return type(self).made()


@pytest.mark.parametrize(
    ("made", "test"),
    [
        (strategies.Held, "test_a_put_that_does_not_wait_is_not_held_up_by_a_slow_disk"),
        (strategies.Forgetful, "test_close_flushes_what_is_left"),
        (strategies.Early, "test_it_is_not_told_so_before_the_sync_returned"),
        (strategies.Generous, "test_an_append_behind_a_sync_that_runs_waits_for_the_next"),
        (strategies.Hopeful, "test_a_failed_sync_fails_every_waiter_and_every_later_put"),
        (strategies.Refusing, "test_every_put_gets_a_status_of_a_message_that_is_in_the_log"),
        (strategies.Endless, "test_it_starts_and_closes_without_appends"),
        (strategies.Abandoning, "test_close_leaves_no_waiter_and_no_thread"),
        (object, "test_it_has_the_methods_of_its_kind"),
    ],
)
def test_each_mistake_is_found(made: Callable[[], FlushStrategy], test: str) -> None:
    kit = type("Kit", (Hasty,), {"made": staticmethod(made)})()
    arguments = () if made is object else (FakeLog(),)
    with pytest.raises((AssertionError, TimeoutError, LakelogError, pytest.fail.Exception)):
        getattr(kit, test)(*arguments)


class HastyGroup(GroupFlushStrategyContract):
    patience_seconds = 0.5
    made: Callable[..., FlushStrategy]

    def make(self) -> FlushStrategy:
        return type(self).made()

    def make_hasty(self, timeout_ms: int) -> FlushStrategy:
        return type(self).made(timeout_ms)


@pytest.mark.parametrize(
    ("made", "test"),
    [
        (groupflushes.Alone, "test_puts_that_wait_share_one_sync"),
        (groupflushes.Alone, "test_many_puts_cause_few_syncs_and_each_is_covered"),
        (
            groupflushes.Patient,
            "test_a_put_whose_time_is_over_is_ended_although_the_sync_hangs",
        ),
        (groupflushes.Patient, "test_those_who_came_while_the_sync_hung_are_ended_too"),
        (groupflushes.Patient, "test_it_goes_on_once_the_disk_does"),
        (groupflushes.Selfish, "test_a_callback_may_put_and_wait"),
        (groupflushes.Selfish, "test_what_a_callback_puts_is_durable_too"),
        (groupflushes.Deaf, "test_a_put_that_does_not_wait_wakes_it"),
        (
            groupflushes.Deaf,
            "test_puts_that_do_not_wait_are_synced_soon_where_reads_wait_for_that",
        ),
        (groupflushes.Restless, "test_a_log_that_is_flushed_is_not_synced_again"),
        (groupflushes.Blunt, "test_a_failed_sync_fails_every_waiter_and_every_later_put"),
    ],
)
def test_each_mistake_of_a_group_is_found(made: Callable[..., FlushStrategy], test: str) -> None:
    kit = type("Kit", (HastyGroup,), {"made": staticmethod(made)})()
    with pytest.raises((AssertionError, TimeoutError, LakelogError, Empty)):
        getattr(kit, test)(FakeLog())
