"""Group commit with compiled waits: the same contract, and the state of threads afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

import lakelog
from lakelog import Message, PutStatus
from lakelog_flush import plugin as flush_plugin
from lakelog_flush.groupcommit import GroupCommit, GroupCommitSettings
from lakelog_flush.waiter import Waiter
from lakelog_native import plugin
from lakelog_native.accelerator import Native
from lakelog_testing import FakeLog, GroupFlushStrategyContract
from lakelog_testing.threads import running
from tests.support.waiting import until

PATIENCE_SECONDS = 20.0


class Crowded:
    """A compiled queue that each put joins, also the only one.

    :ivar joined: number of puts that have joined it
    """

    def __init__(self, timeout_s: float, joined: Callable[[int], object]) -> None:
        def count(end_offset: int) -> None:
            joined(end_offset)
            self.joined += 1

        self.joined = 0
        self._queue = Native.waiters(timeout_s, count)
        self._queue.set_crowded(True)
        self.wait = self._queue.wait

    def set_crowded(self, is_crowded: bool) -> None:
        """Ignore the value: the queue stays crowded."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def crowded(timeout_ms: int = 5_000) -> GroupCommit:
    accelerator: Any = SimpleNamespace(waiters=Crowded)
    return GroupCommit(GroupCommitSettings(timeout_ms), accelerator)


class TestCrowded(GroupFlushStrategyContract):
    def make(self) -> GroupCommit:
        return crowded()

    def make_hasty(self, timeout_ms: int) -> GroupCommit:
        return crowded(timeout_ms)


class TestByNeed(GroupFlushStrategyContract):
    """Threads join the compiled queue once they share syncs."""

    def make(self) -> GroupCommit:
        return GroupCommit(GroupCommitSettings(), Native())

    def make_hasty(self, timeout_ms: int) -> GroupCommit:
        return GroupCommit(GroupCommitSettings(timeout_ms), Native())


@pytest.mark.parametrize("comes_back", [False, True])
def test_threads_keep_their_processors_whether_they_come_back_or_not(comes_back: bool) -> None:
    log, allowed = FakeLog(), os.sched_getaffinity(0)
    log.sync_seconds = 0.001

    def put(_: int) -> bool:
        for _ in range(20 if comes_back else 1):
            end = log.append()
            if flush.wait(end) is not PutStatus.PUT_OK or log.flushed < end:
                return False
            if os.sched_getaffinity(0) != allowed:
                return False
        time.sleep(0 if comes_back else 0.01)
        return True

    with running(crowded(), log) as flush, ThreadPoolExecutor(16) as pool:
        assert all(pool.map(put, range(64), timeout=PATIENCE_SECONDS))


def test_a_signal_ends_a_wait_and_the_others_go_on() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    log, before = FakeLog(), signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main is not None
    try:
        with running(crowded(60_000), log) as flush, ThreadPoolExecutor(3) as pool:
            native: Any = flush._native

            def interrupt_second() -> None:
                until(lambda: native.joined == 2)
                signal.pthread_kill(main, signal.SIGUSR1)

            with log.stalled():
                first = pool.submit(flush.wait, log.append())
                log.await_sync(PATIENCE_SECONDS)
                pool.submit(interrupt_second)
                with pytest.raises(Interrupted):
                    flush.wait(log.append())
                last = pool.submit(flush.wait, log.append())
                log.release()
                assert first.result(PATIENCE_SECONDS) is PutStatus.PUT_OK
                assert last.result(PATIENCE_SECONDS) is PutStatus.PUT_OK
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_thread_that_answers_does_not_wait_there_itself() -> None:
    """Else nobody would answer its put before its time is over."""
    log, found = FakeLog(), Queue[PutStatus | None]()
    with running(crowded(2_000), log) as flush:
        with log.stalled():
            first = flush.submit(log.append(), True)
            assert isinstance(first, Waiter)
            first.add_done_callback(lambda _: found.put(flush.wait(log.append())))
        assert found.get(timeout=PATIENCE_SECONDS) is None


def test_a_callback_puts_and_waits_beside_many_threads(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"plugins": [plugin, flush_plugin], "flush": "group-commit"}
    statuses: list[PutStatus] = []

    def message() -> Message:
        return Message("t", b"x" * 100, queue_id=0)

    with lakelog.open(tmp_path / "s", dispatchers=(), **settings) as store:

        def put(_: int) -> list[PutStatus]:
            future = store.put_async(message())
            future.add_done_callback(lambda _: statuses.append(store.put(message()).status))
            return [*(store.put(message()).status for _ in range(20)), future.result().status]

        with ThreadPoolExecutor(16) as pool:
            found = [each for part in pool.map(put, range(32)) for each in part]
        until(lambda: len(statuses) == 32)
    assert {*found, *statuses} == {PutStatus.PUT_OK}
