"""The kits for flush strategies accept correct ones, and find each mistake."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import Empty

import pytest

from lakelog.errors import LakelogError, NotOpened, StoreFailed
from lakelog.hooks import Flushable, FlushStrategy, Outcome
from lakelog.results import PutStatus
from lakelog_testing import (
    DurableFlushStrategyContract,
    FakeLog,
    GroupFlushStrategyContract,
    ReplicatorContract,
)

Waiting = list[tuple[int, Future[PutStatus]]]


class Inline:
    """Syncs in each put that waits."""

    def start(self, log: Flushable) -> None:
        self.log = log

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        if wait and self.log.flushed < end_offset:
            self.log.sync()
        return PutStatus.PUT_OK

    def close(self) -> None:
        if self.log.flushed < self.log.appended:
            self.log.sync()


class Group:
    """Syncs in a thread, once for all waiting puts; ends each put with its own timer."""

    waits_for_disk = True

    def __init__(self, timeout_ms: int = 5_000) -> None:
        self.timeout_seconds = timeout_ms / 1000

    def start(self, log: Flushable) -> None:
        self.log = log
        self.waiting: Waiting = []
        self.wake = threading.Condition()
        self.closing = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        if wait and self.is_called_back():
            self.log.sync()
            return PutStatus.PUT_OK
        future: Future[PutStatus] = Future()
        with self.wake:
            self.waiting.append((end_offset, future))
            self.wake.notify()
        late = future, PutStatus.FLUSH_DISK_TIMEOUT
        timer = threading.Timer(self.timeout_seconds, answer, late)
        timer.daemon = True
        future.add_done_callback(lambda _: timer.cancel())
        timer.start()
        return future if wait else PutStatus.PUT_OK

    def is_called_back(self) -> bool:
        """Whether a callback puts in the thread that releases puts: it must not wait for itself."""
        return threading.current_thread() is self.thread

    def close(self) -> None:
        with self.wake:
            self.closing = True
            self.wake.notify()
        self.thread.join()
        if self.log.flushed < self.log.appended:
            self.log.sync()

    def _run(self) -> None:
        while not self.closing or self.waiting:
            with self.wake:
                self.wake.wait_for(lambda: self.waiting or self.closing)
                group, self.waiting = self.waiting, []
            if group:
                self.serve(group)

    def serve(self, group: Waiting) -> None:
        try:
            self.log.sync()
        except StoreFailed as error:
            self.fail(group, error)
        except NotOpened:  # tried again
            with self.wake:
                self.waiting = [*group, *self.waiting]
        else:
            for _, future in group:
                answer(future, PutStatus.PUT_OK)

    def fail(self, group: Waiting, error: StoreFailed) -> None:
        for _, future in group:
            with suppress(InvalidStateError):
                future.set_exception(error)


def answer(future: Future[PutStatus], status: PutStatus) -> None:
    with suppress(InvalidStateError):  # another thread was first
        future.set_result(status)


class TestInline(DurableFlushStrategyContract):
    def make(self) -> Inline:
        return Inline()


class TestGroup(GroupFlushStrategyContract):
    def make(self) -> Group:
        return Group()

    def make_hasty(self, timeout_ms: int) -> Group:
        return Group(timeout_ms)


class TestAsReplicator(ReplicatorContract):
    def make(self) -> Group:
        return Group()


# --- one for each mistake that a kit must find ---


class Held(Inline):
    """Syncs although the put must not wait."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        self.log.sync()
        return PutStatus.PUT_OK


class Forgetful(Inline):
    """Does not flush at close."""

    def close(self) -> None: ...


class Hopeful(Inline):
    """Ignores a failed sync."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        with suppress(StoreFailed):
            super().submit(end_offset, wait)
        return PutStatus.PUT_OK


class Refusing(Inline):
    """Returns a status that means the message is not in the log."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        return PutStatus.SERVICE_NOT_AVAILABLE


class Endless(Inline):
    """Leaves a thread running."""

    def start(self, log: Flushable) -> None:
        super().start(log)
        threading.Thread(target=threading.Event().wait, args=(5,), daemon=True).start()


class Early(Group):
    """Releases a put before the sync returned."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        super().submit(end_offset, wait)
        return PutStatus.PUT_OK


class Generous(Group):
    """Releases all waiting puts after a sync, including those it does not cover."""

    def serve(self, group: Waiting) -> None:
        self.log.sync()
        with self.wake:
            late, self.waiting = self.waiting, []
        for _, future in group + late:
            answer(future, PutStatus.PUT_OK)


class Abandoning(Group):
    """Leaves waiting puts without a status at close."""

    def serve(self, group: Waiting) -> None: ...


class Alone(Group):
    """Syncs for each put separately."""

    def serve(self, group: Waiting) -> None:
        for each in group:
            super().serve([each])


class Patient(Group):
    """Waits without a limit."""

    def __init__(self, timeout_ms: int = 0) -> None:  # wrong on purpose
        super().__init__(60_000)


class Selfish(Group):
    """Lets a callback wait for its own thread."""

    def is_called_back(self) -> bool:
        return False


class Deaf(Group):
    """Is not woken by puts that do not wait."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        return super().submit(end_offset, wait) if wait else PutStatus.PUT_OK


class Blunt(Group):
    """Hides why a sync failed."""

    def fail(self, group: Waiting, error: StoreFailed) -> None:
        super().fail(group, StoreFailed("it failed"))


class Restless(Group):
    """Syncs even if there is nothing to sync."""

    def start(self, log: Flushable) -> None:
        super().start(log)
        self.over = threading.Event()
        threading.Thread(target=self._again, daemon=True).start()

    def _again(self) -> None:
        while not self.over.wait(0.01):
            self.log.sync()

    def close(self) -> None:
        self.over.set()
        super().close()


class Kit(DurableFlushStrategyContract):
    patience_seconds = 0.5
    made: Callable[..., FlushStrategy]

    def make(self) -> FlushStrategy:
        return type(self).made()


class GroupKit(Kit, GroupFlushStrategyContract):
    def make_hasty(self, timeout_ms: int) -> FlushStrategy:
        return type(self).made(timeout_ms)


@pytest.mark.parametrize(
    ("kit", "made", "test"),
    [
        (Kit, Held, "a_put_that_does_not_wait_is_not_held_up_by_a_slow_disk"),
        (Kit, Forgetful, "close_flushes_what_is_left"),
        (Kit, Early, "it_is_not_told_so_before_the_sync_returned"),
        (Kit, Generous, "an_append_behind_a_sync_that_runs_waits_for_the_next"),
        (Kit, Hopeful, "a_failed_sync_fails_every_waiter_and_every_later_put"),
        (Kit, Refusing, "every_put_gets_a_status_of_a_message_that_is_in_the_log"),
        (Kit, Endless, "it_starts_and_closes_without_appends"),
        (Kit, Abandoning, "close_leaves_no_waiter_and_no_thread"),
        (Kit, object, "it_has_the_methods_of_its_kind"),
        (GroupKit, Alone, "puts_that_wait_share_one_sync"),
        (GroupKit, Alone, "many_puts_cause_few_syncs_and_each_is_covered"),
        (GroupKit, Patient, "a_put_whose_time_is_over_is_ended_although_the_sync_hangs"),
        (GroupKit, Patient, "those_who_came_while_the_sync_hung_are_ended_too"),
        (GroupKit, Patient, "it_goes_on_once_the_disk_does"),
        (GroupKit, Selfish, "a_callback_may_put_and_wait"),
        (GroupKit, Selfish, "what_a_callback_puts_is_durable_too"),
        (GroupKit, Deaf, "a_put_that_does_not_wait_wakes_it"),
        (GroupKit, Deaf, "puts_that_do_not_wait_are_synced_soon_where_reads_wait_for_that"),
        (GroupKit, Restless, "a_log_that_is_flushed_is_not_synced_again"),
        (GroupKit, Blunt, "a_failed_sync_fails_every_waiter_and_every_later_put"),
    ],
)
def test_each_mistake_is_found(kit: type[Kit], made: type, test: str) -> None:
    bound = getattr(type("It", (kit,), {"made": made})(), f"test_{test}")
    arguments = [FakeLog()] * len(inspect.signature(bound).parameters)
    with pytest.raises((AssertionError, TimeoutError, LakelogError, Empty, pytest.fail.Exception)):
        bound(*arguments)
