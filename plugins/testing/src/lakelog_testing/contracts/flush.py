"""Contract tests for flush strategies, with more for strategies that make waiting puts durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from queue import Queue
from typing import Any

import pytest

from lakelog.errors import StoreFailed
from lakelog.hooks import FlushStrategy, Outcome
from lakelog.registry import check_object
from lakelog.results import PutStatus
from lakelog_testing.fakes import FakeLog
from lakelog_testing.threads import PATIENCE_SECONDS, beside, no_thread_left, poll, running, settle


class LaterPut:
    """An asynchronous put, as a strategy settles it."""

    def __init__(self, end_offset: int) -> None:
        self.end_offset, self.deadline = end_offset, 0.0
        self.settled = Future[PutStatus]()

    def done(self) -> bool:
        """Whether it is settled."""
        return self.settled.done()


class Passes:
    """Puts to a strategy with ``submit_later``.

    :ivar settled: the puts of each pass
    :ivar durable: for each settled put with ``PUT_OK``, whether it was durable then
    :ivar serve: the third argument of the last pass
    """

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.settled: list[Sequence[LaterPut]] = []
        self.durable: list[bool] = []

    def submit(self, flush: Any) -> LaterPut:
        """Append, and register."""
        put = LaterPut(self.log.append())
        flush.submit_later(put, self.settle)
        return put

    def settle(
        self, puts: Sequence[LaterPut], outcome: PutStatus | Exception, serve: Callable[[Any], Any]
    ) -> None:
        """As the store does."""
        self.serve = serve
        self.settled.append(puts)
        for put in puts:
            if isinstance(outcome, Exception):
                put.settled.set_exception(outcome)
                continue
            if outcome is PutStatus.PUT_OK:
                self.durable.append(self.log.flushed >= put.end_offset)
            put.settled.set_result(outcome)


class FlushStrategyContract:
    """Subclass it and define :meth:`make`; each test creates its own strategy."""

    patience_seconds: float = PATIENCE_SECONDS
    """Time limit of a test for an expected event."""

    def make(self) -> FlushStrategy:
        """Create a strategy that is not started."""
        raise NotImplementedError

    @pytest.fixture
    def log(self) -> FakeLog:
        """A log whose syncs can be stalled and broken."""
        return FakeLog()

    def settle(self, outcome: Outcome) -> PutStatus:
        """The final status of an outcome; fails on timeout."""
        return settle(outcome, self.patience_seconds)

    def put(self, flush: FlushStrategy, end: int) -> PutStatus:
        """Wait for an append as a store does: by ``wait``, if the strategy has it."""
        wait = getattr(flush, "wait", None)
        status: PutStatus | None = None if wait is None else wait(end)
        return self.settle(flush.submit(end, wait=True)) if status is None else status

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), FlushStrategy) is None

    def test_it_starts_and_closes_without_appends(self, log: FakeLog) -> None:
        with no_thread_left(self.patience_seconds), running(self.make(), log):
            pass

    def test_every_put_gets_a_status_of_a_message_that_is_in_the_log(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush:
            for wait in (True, False) * 10:
                assert self.settle(flush.submit(log.append(), wait)).in_log

    def test_a_put_that_does_not_wait_is_not_held_up_by_a_slow_disk(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush, log.stalled():
            for _ in range(20):
                put = partial(flush.submit, log.append(), wait=False)
                with beside(put) as call, log.released_behind():
                    call.result(self.patience_seconds)

    def test_a_callback_may_put_and_wait(self, log: FakeLog) -> None:
        """From any thread, which may be the one that answers."""
        assert all(status.in_log for status in self.put_in_callbacks(log))

    def put_in_callbacks(self, log: FakeLog) -> list[PutStatus]:
        """The statuses of puts made and awaited inside callbacks."""
        with running(self.make(), log) as flush, ExitStack() as stack:
            first = flush.submit(log.append(), wait=True)
            self.settle(first)
            if hasattr(flush, "submit_later") or not isinstance(first, PutStatus):
                stack.enter_context(log.stalled())  # no answer before the callback is registered
            answered = [self.put_behind(flush, log) for _ in range(3)]
            log.release()
            return [self.settle(each.get(timeout=self.patience_seconds)) for each in answered]

    def put_behind(self, flush: FlushStrategy, log: FakeLog) -> Queue[Outcome]:
        """Put, then put and wait in its callback; a queue for the outcome of the second put."""
        answered = Queue[Outcome]()

        def again(_: object) -> None:
            with suppress(Exception):  # the caller then waits in vain
                answered.put(self.put(flush, log.append()))

        outcome = flush.submit(log.append(), wait=True)
        if isinstance(outcome, PutStatus):
            again(outcome)
        else:
            outcome.add_done_callback(again)
        return answered

    def test_puts_that_do_not_wait_are_synced_soon_where_reads_wait_for_that(
        self, log: FakeLog
    ) -> None:
        """Including one during a sync that does not cover it."""
        with running(self.make(), log) as flush:
            is_due = getattr(flush, "waits_for_disk", False)
            with log.stalled():
                for _ in range(2):
                    put = partial(flush.submit, log.append(), wait=False)
                    with beside(put) as call, log.released_behind():
                        assert self.settle(call.result(self.patience_seconds)).in_log
                    if is_due:
                        log.await_sync(self.patience_seconds)
            for _ in range(3):
                if is_due:
                    self.await_flushed(log)
                assert self.settle(flush.submit(log.append(), wait=False)).in_log

    def test_a_sync_that_cannot_open_a_file_is_tried_again(self, log: FakeLog) -> None:
        """By the same thread: no put may come behind it."""
        with running(self.make(), log) as flush:
            if getattr(flush, "waits_for_disk", False):
                log.lacking = 2
                flush.submit(log.append(), wait=False)
                self.await_flushed(log)

    def await_flushed(self, log: FakeLog) -> None:
        """Wait until everything appended is durable."""
        is_flushed = poll(lambda: log.flushed >= log.appended, self.patience_seconds)
        assert is_flushed, "a put that does not wait is not synced"

    def test_close_flushes_what_is_left(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush:
            for _ in range(7):
                flush.submit(log.append(), wait=False)
        assert log.flushed == log.appended

    def test_close_leaves_no_waiter_and_no_thread(self, log: FakeLog) -> None:
        with no_thread_left(self.patience_seconds):
            with running(self.make(), log) as flush:
                outcomes = [flush.submit(log.append(), wait=True) for _ in range(7)]
            for outcome in outcomes:
                assert settle(outcome, 0).in_log

    def test_close_of_a_log_that_failed_by_itself_breaks_no_thread(self, log: FakeLog) -> None:
        flush = self.make()
        with no_thread_left(self.patience_seconds):
            flush.start(log)
            log.break_disk()
            with suppress(StoreFailed), beside(flush.close) as call:
                call.result(self.patience_seconds)

    def test_close_ends_when_the_disk_is_broken(self, log: FakeLog) -> None:
        flush = self.make()
        with no_thread_left(self.patience_seconds):
            flush.start(log)
            log.break_disk()
            with suppress(StoreFailed):
                flush.submit(log.append(), wait=False)
            with suppress(StoreFailed), beside(flush.close) as call:
                call.result(self.patience_seconds)
        assert log.flushed == 0


class DurableFlushStrategyContract(FlushStrategyContract):
    """For strategies under which a put that waited with ``PUT_OK`` is durable."""

    def test_a_put_that_waited_is_durable(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush:
            for _ in range(20):
                end = log.append()
                assert self.put(flush, end) is PutStatus.PUT_OK
                assert log.flushed >= end

    def test_what_a_callback_puts_is_durable_too(self, log: FakeLog) -> None:
        assert self.put_in_callbacks(log) == [PutStatus.PUT_OK] * 3

    def test_it_is_not_told_so_before_the_sync_returned(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush, log.stalled():
            end = log.append()
            with self.waiting(flush, log, end) as put:
                with pytest.raises(TimeoutError):
                    put.result(0.1)
                log.release()
                assert put.result(self.patience_seconds) is PutStatus.PUT_OK
                assert log.flushed >= end

    def test_an_append_behind_a_sync_that_runs_waits_for_the_next(self, log: FakeLog) -> None:
        with (
            running(self.make(), log) as flush,
            log.stalled(),
            self.waiting(flush, log, log.append()) as first,
        ):
            log.await_sync(self.patience_seconds)
            end = log.append()
            with self.waiting(flush, log, end) as second:
                log.release()
                assert first.result(self.patience_seconds) is PutStatus.PUT_OK
                assert second.result(self.patience_seconds) is PutStatus.PUT_OK
                assert log.flushed >= end

    def test_ends_may_come_in_any_order(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush:
            ends = [log.append() for _ in range(5)]
            for end in reversed(ends):
                assert self.put(flush, end) is PutStatus.PUT_OK
                assert log.flushed >= end

    def test_puts_of_many_threads_are_all_durable(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush, ThreadPoolExecutor(8) as pool:

            def put(_: int) -> bool:
                end = log.append()
                status = self.put(flush, end)
                return status is PutStatus.PUT_OK and log.flushed >= end

            assert all(pool.map(put, range(200), timeout=3 * self.patience_seconds))

    def test_a_failed_sync_fails_every_waiter_and_every_later_put(self, log: FakeLog) -> None:
        with suppress(StoreFailed), running(self.make(), log) as flush, log.stalled():
            with self.waiting(flush, log, log.append()) as first:
                log.await_sync(self.patience_seconds)
                with self.waiting(flush, log, log.append()) as second:
                    log.break_disk()
                    log.release()
                    for put in (first, second):
                        with pytest.raises(StoreFailed) as failed:
                            put.result(self.patience_seconds)
                        assert isinstance(failed.value.__cause__, OSError)
            with pytest.raises(StoreFailed):
                self.put(flush, log.append())

    def test_puts_that_are_settled_later_are_durable_and_fail_together(self, log: FakeLog) -> None:
        """For strategies with ``submit_later``."""
        with suppress(StoreFailed), running(self.make(), log) as flush:
            if not hasattr(flush, "submit_later"):
                return
            passes = Passes(log)
            with log.stalled():
                first = passes.submit(flush)
                log.await_sync(self.patience_seconds)
                rest = [passes.submit(flush) for _ in range(5)]
                log.release()
                for put in (first, *rest):
                    assert put.settled.result(self.patience_seconds) is PutStatus.PUT_OK
            assert [len(each) for each in passes.settled][-1] == 5, "not settled in one pass"
            assert all(passes.durable)
            log.break_disk()
            for put in [passes.submit(flush) for _ in range(3)]:
                assert isinstance(put.settled.exception(self.patience_seconds), StoreFailed)

    def test_puts_that_are_settled_later_outlive_the_close(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush:
            if not hasattr(flush, "submit_later"):
                return
            passes = Passes(log)
            puts = [passes.submit(flush) for _ in range(7)]
        puts.append(passes.submit(flush))  # by a thread that was late
        assert [put.settled.result(0) for put in puts] == [PutStatus.PUT_OK] * 8
        assert all(passes.durable)

    @contextmanager
    def waiting(self, flush: FlushStrategy, log: FakeLog, end: int) -> Iterator[Future[PutStatus]]:
        """A put waiting in a separate thread; if the block fails, the disk is released."""
        with (
            beside(lambda: self.put(flush, end)) as put,
            log.released_behind(),
        ):
            yield put


class GroupFlushStrategyContract(DurableFlushStrategyContract):
    """For durable strategies under which waiting puts share syncs, and time out."""

    def make_hasty(self, timeout_ms: int) -> FlushStrategy:
        """Create a strategy whose puts wait for at most ``timeout_ms``."""
        raise NotImplementedError

    def test_puts_that_wait_share_one_sync(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush, ThreadPoolExecutor(20) as pool:
            with log.stalled(), self.waiting(flush, log, log.append()) as first:
                log.await_sync(self.patience_seconds)
                ends = [log.append() for _ in range(20)]
                puts = [pool.submit(self.put, flush, end) for end in ends]
                time.sleep(0.1)  # until all of them wait
                log.release()
                for put in (first, *puts):
                    assert put.result(self.patience_seconds) is PutStatus.PUT_OK
            assert log.flushed >= ends[-1]
            assert log.syncs <= 3, f"{log.syncs} syncs for 20 puts that waited at the same time"

    def test_many_puts_cause_few_syncs_and_each_is_covered(self, log: FakeLog) -> None:
        """The fake log moves ``flushed`` only to bytes appended before a completed sync."""
        log.sync_seconds = 0.002
        threads, puts = 16, 20
        with running(self.make(), log) as flush, ThreadPoolExecutor(threads) as pool:

            def run(_: int) -> bool:
                end = log.append()
                return self.put(flush, end) is PutStatus.PUT_OK and log.flushed >= end

            done = pool.map(run, range(threads * puts), timeout=3 * self.patience_seconds)
            assert all(done)
        assert log.syncs <= threads * puts // 4, f"{log.syncs} syncs for {threads * puts} puts"

    def test_a_put_whose_time_is_over_is_ended_although_the_sync_hangs(self, log: FakeLog) -> None:
        with running(self.make_hasty(50), log) as flush, log.stalled():
            end = log.append()
            with self.waiting(flush, log, end) as put:
                assert put.result(self.patience_seconds) is PutStatus.FLUSH_DISK_TIMEOUT
                assert log.flushed < end

    def test_puts_that_are_settled_later_are_ended_in_time(self, log: FakeLog) -> None:
        """Also one that a callback of another waits for, in the same thread."""
        with running(self.make_hasty(50), log) as flush, log.stalled():
            if not hasattr(flush, "submit_later"):
                return
            passes, inner = Passes(log), Queue[PutStatus]()

            def again(_: object) -> None:
                put = passes.submit(flush)
                passes.serve(put)
                inner.put(put.settled.result(0))

            passes.submit(flush).settled.add_done_callback(again)
            assert inner.get(timeout=self.patience_seconds) is PutStatus.FLUSH_DISK_TIMEOUT

    def test_those_who_came_while_the_sync_hung_are_ended_too(self, log: FakeLog) -> None:
        with running(self.make_hasty(50), log) as flush, log.stalled():
            with self.waiting(flush, log, log.append()) as first:
                log.await_sync(self.patience_seconds)
                with self.waiting(flush, log, log.append()) as second:
                    for put in (first, second):
                        assert put.result(self.patience_seconds) is PutStatus.FLUSH_DISK_TIMEOUT
            with self.waiting(flush, log, log.append()) as third:
                assert third.result(self.patience_seconds) is PutStatus.FLUSH_DISK_TIMEOUT

    def test_a_callback_of_one_whose_time_is_over_may_wait_too(self, log: FakeLog) -> None:
        with running(self.make_hasty(50), log) as flush, log.stalled():
            answered = self.put_behind(flush, log)
            outcome = answered.get(timeout=self.patience_seconds)
            assert self.settle(outcome) is PutStatus.FLUSH_DISK_TIMEOUT

    def test_it_goes_on_once_the_disk_does(self, log: FakeLog) -> None:
        with running(self.make_hasty(300), log) as flush:
            with log.stalled(), self.waiting(flush, log, log.append()) as put:
                assert put.result(self.patience_seconds) is PutStatus.FLUSH_DISK_TIMEOUT
            time.sleep(0.05)  # the hanging sync returns
            end = log.append()
            assert self.put(flush, end) is PutStatus.PUT_OK
            assert log.flushed >= end

    def test_a_put_that_does_not_wait_wakes_it(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush:
            flush.submit(log.append(), wait=False)
            self.await_flushed(log)

    def test_a_log_that_is_flushed_is_not_synced_again(self, log: FakeLog) -> None:
        with running(self.make(), log) as flush:
            self.put(flush, log.append())
            time.sleep(0.02)
            before = log.syncs
            time.sleep(0.1)
            assert log.syncs == before
