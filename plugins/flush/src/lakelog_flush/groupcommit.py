"""``group-commit``: puts wait until their bytes are durable, and waiting puts share one sync.

Like RocketMQ's ``GroupCommitService``, without two of its faults: a put is released only by a sync
that covers its bytes and began after they were written, and no put succeeds after a failed sync.

One thread syncs. A second thread enforces ``sync_flush_timeout_ms``, so that a sync that hangs
delays no put for longer. If puts synced in their own threads, two thread switches would be saved,
but a put in a hanging sync could not be timed out.

A single waiting put of a process waits on the word in the shared page, and requests a sync only if
no process is syncing. So one process syncs for many. Further puts of the process wait in a queue.
With an accelerator, threads wait in compiled code instead, once they share syncs; it wakes them one
by one, as threads woken together compete for the interpreter lock. Asynchronous puts have a queue
of their own, and those that a sync covers are settled in one pass.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread, get_ident
from typing import Any, Final, Generic, TypeVar

from attrs import field, frozen, validators

from lakelog.accelerate import Accelerator
from lakelog.errors import NotOpened, StoreFailed
from lakelog.hooks import AppendedPut, Flushable, Outcome, Settle
from lakelog.results import PutStatus
from lakelog.runtime.locks import LockFreeEvent, Mutex, YieldLock
from lakelog.runtime.threads import Shortage, started
from lakelog_flush.waiter import Waiter, Wakeup

_log = logging.getLogger("lakelog")
EVERY_SECONDS: Final = 1.0
"""Interval between two log lines about puts that were not durable in time."""
TICK_SECONDS: Final = 0.5
"""Upper bound for the delay if a notification were lost."""
RETRY_SECONDS: Final = 0.1
"""Wait after a sync for which a file could not be opened."""
_PUT_OK: Final = PutStatus.PUT_OK
_TIMEOUT: Final = PutStatus.FLUSH_DISK_TIMEOUT
MOST_OF_A_SYNC: Final = 0.3
"""Longest wait, as a fraction of the duration of a sync."""
MOST_SECONDS: Final = 0.01
"""Longest wait in seconds, on any disk."""
SLOW_SECONDS: Final = 0.002
"""For faster syncs, the extra thread switch costs more than the saved sync."""
MOST_SKIPPED: Final = 64
_WEIGHT: Final = 1 / 8


@frozen
class GroupCommitSettings:
    """Settings of ``group-commit``.

    :ivar sync_flush_timeout_ms: longest wait of a put for its sync (RocketMQ's
        ``syncFlushTimeout``); its status is then ``FLUSH_DISK_TIMEOUT``
    """

    sync_flush_timeout_ms: int = field(default=5_000, validator=validators.ge(1))


class GroupCommit:
    """Waiting puts share the syncs of one thread."""

    waits_for_disk = True

    def __init__(
        self, settings: GroupCommitSettings, accelerator: Accelerator | None = None
    ) -> None:
        self.timeout_ms = settings.sync_flush_timeout_ms
        self._queue = WaitQueue[Waiter](self.timeout_ms / 1000)
        self._at_word = YieldLock()
        self._waiting = self._queue.waiting
        self._later = WaitQueue[AppendedPut](self._queue.timeout_seconds)
        self._unsettled = self._later.waiting
        self._settle: Settle = _settle_nothing
        self._native: Any = None  # what `Accelerator.waiters` makes
        if accelerator is not None:
            self._native = accelerator.waiters(self._queue.timeout_seconds, self._joined)
            self.wait = self._native.wait
        self._wakeup = Wakeup()
        self._timeouts = TimeoutLog(self._queue.timeout_seconds)
        self._shortage = Shortage("syncing is delayed")
        self._gathering = Gathering()
        self._wanted = 0
        self._requested_end = 0
        self._asked = False
        self._over = LockFreeEvent()
        self._closing = False
        self._ended = False
        self._failure: Exception | None = None
        self._log: Flushable | None = None
        self._threads: list[Thread] = []
        self._flusher: int | None = None
        self._watcher: int | None = None

    def start(self, log: Flushable) -> None:
        """Start the syncing thread and the timeout thread."""
        self._log = log
        flusher = Thread(target=self._flush, args=(log,), name="lakelog-group-commit", daemon=True)
        watcher = Thread(target=self._watch, name="lakelog-group-commit-watcher", daemon=True)
        for thread in (flusher, watcher):
            # one by one: if the second fails, close() joins the first
            self._threads.append(started(thread))
        self._flusher, self._watcher = flusher.ident, watcher.ident
        if self._native is not None:
            self._native.set_own(flusher.ident or 0, watcher.ident or 0)

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Return a pending status; a put that does not wait only wakes the syncing thread."""
        if wait:
            deadline = time.monotonic() + self._queue.timeout_seconds
            return Waiter(end_offset, deadline, self._serve)
        self._requested_end = end_offset
        self._wakeup.notify()
        return _PUT_OK

    def submit_later(self, put: AppendedPut, settle: Settle) -> None:
        """Settle ``put`` later, together with others."""
        put.deadline = time.monotonic() + self._queue.timeout_seconds
        self._settle = settle
        self._unsettled.append(put)
        self._joined(put.end_offset)

    def _serve(self, waiter: Waiter, sleeps: bool) -> None:
        """Wait on the shared word unless another put of this process does; else join the queue."""
        # Only one thread per process waits on the shared word; others join the queue. A waiter with
        # a callback has no sleeping thread, and joins the queue too.
        here = get_ident()
        if not sleeps or self._waiting or here in (self._flusher, self._watcher):
            self._join(waiter)
            self._serve_here(waiter)
            return
        at_word = self._at_word
        try:
            if at_word.take(False):
                self._wait_at_word(waiter)
            else:
                self._join(waiter)
        finally:
            try:
                if at_word.is_mine():
                    at_word.release()
            finally:
                if at_word.is_mine():  # a signal handler has raised
                    at_word.release()

    def _join(self, waiter: Waiter) -> None:
        self._waiting.append(waiter)
        self._joined(waiter.end_offset)

    def _joined(self, end_offset: int) -> None:
        """Wake the syncing thread for a put in a queue, unless it gathers more puts.

        Also called by a thread in the compiled queue, before it sleeps.
        """
        if end_offset >= self._wanted:
            self._wakeup.notify()
        # after the put joined its queue, because the syncing thread may have ended before it
        if self._ended:
            self._answer_late()

    def _wait_at_word(self, waiter: Waiter) -> None:
        """Wait on the shared word in the put's own thread, and set the status."""
        log, left = self._log, waiter.deadline - time.monotonic()
        try:
            in_time = log is None or log.wait_flushed(waiter.end_offset, left, self._ask)
        except StoreFailed as error:
            waiter.finish(error)
            return
        except BaseException:  # Ctrl-C: the caller may request the status again
            self._join(waiter)
            raise
        waiter.finish(_PUT_OK if in_time else _TIMEOUT)
        if not in_time:
            self._timeouts.add(1)

    def _ask(self) -> None:
        """Request a sync from the syncing thread, for when no process is syncing."""
        self._asked = True
        self._wakeup.notify()
        # after the notification, because the thread may have ended before it
        if self._ended and self._log is not None:
            self._log.try_sync()

    def _answer_late(self) -> None:
        """Release waiting puts after the syncing thread has ended, by a failure or by close()."""
        try:
            if self._failure is None and self._log is not None:
                self._answer(self._log.sync())
        except Exception as error:  # noqa: BLE001  # no put may wait forever
            self._failure = error
        if self._failure is not None:
            self._fail_all(self._failure)
        self._wake_all()

    def _wake_all(self) -> None:
        if self._native is not None:
            self._native.wake_all()

    def _serve_here(self, put: Waiter | AppendedPut) -> None:
        """Serve a put made by a callback in a thread of this strategy, which would block itself."""
        log, here = self._log, get_ident()
        while here == self._flusher and log is not None and not put.done():
            self._answer(log.sync())
        while here == self._watcher and not put.done():
            self._over.wait(self._seconds_left())
            self._end_late()

    def wake(self) -> None:
        """Request a sync after a commit, or after the failure of one."""
        self._asked = True
        self._wakeup.notify()

    # --- the syncing thread ---

    def _flush(self, log: Flushable) -> None:
        """Sync while there is work, until :meth:`close`; a failure ends thread and waits."""
        try:
            while not self._closing or self._has_work():
                self._wakeup.sleep(TICK_SECONDS, self._has_work)
                try:
                    self._work(log)
                    self._shortage.end()
                except NotOpened as error:  # puts that wait have their timeout
                    if self._closing:
                        raise
                    self._shortage.begin(error)
                    time.sleep(RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001  # no put may wait forever
            self._failure = error
        self._ended = True
        self._answer_late()

    def _work(self, log: Flushable) -> None:
        if self._has_puts() or log.flushed < self._requested_end:
            self._sync(log)
        elif self._asked:
            self._asked = False
            log.try_sync()

    def _sync(self, log: Flushable) -> None:
        """Sync, answer, and wait for the puts that may share the next sync."""
        before, begun = log.flushed, time.monotonic()
        flushed = log.sync()
        took, wanted = time.monotonic() - begun, log.appended + flushed - before
        self._gathering.synced(took)
        answered = self._answer(flushed)
        if self._native is not None:
            self._native.oversee()
        if answered > 1 or self._has_puts():
            self._gather(log, wanted)

    def _gather(self, log: Flushable, wanted: int) -> None:
        """Wait until as many bytes arrive as were just synced, if that pays off."""
        patience = self._gathering.patience_seconds()
        if not patience:
            return

        def enough() -> bool:
            return self._closing or log.appended >= wanted

        deadline = time.monotonic() + patience
        self._wanted = wanted
        while not enough() and (left := deadline - time.monotonic()) > 0:
            self._wakeup.sleep(left, enough)
        self._wanted = 0
        self._gathering.ended(in_time=log.appended >= wanted and time.monotonic() <= deadline)

    def _has_work(self) -> bool:
        if self._has_puts() or self._asked:
            return True
        log = self._log
        return log is not None and log.flushed < self._requested_end

    def _has_puts(self) -> bool:
        """Whether any put waits."""
        if self._waiting or self._unsettled:
            return True
        return self._native is not None and self._native.is_waiting()

    def _answer(self, flushed: int) -> int:
        """Answer all puts that end at or before ``flushed``; return their number."""
        covered = self._queue.take_covered(flushed)
        for waiter in covered:
            waiter.finish(_PUT_OK)
        threads = len(covered)
        if self._native is not None:
            threads += self._native.answer(flushed, _PUT_OK)
            self._native.set_crowded(threads > 1)
        settled = self._later.take_covered(flushed)
        self._settle_all(settled, _PUT_OK)
        return threads + len(settled)

    def _settle_all(self, puts: Sequence[AppendedPut], answer: PutStatus | Exception) -> None:
        if puts:
            self._settle(puts, answer, self._serve_here)

    def _fail_all(self, error: Exception) -> None:
        self._settle_all(self._later.take_all(), error)
        if self._native is not None:
            self._native.answer_all(partial(_fresh, error))
        for waiter in self._queue.take_all():
            waiter.finish(_fresh(error))

    # --- the timeout thread ---

    def _watch(self) -> None:
        while not self._over.wait(self._seconds_left()):
            self._end_late()
        self._timeouts.write()

    def _seconds_left(self) -> float:
        now = time.monotonic()
        left = min(self._queue.seconds_left(now), self._later.seconds_left(now))
        if self._native is not None and (of_threads := self._native.seconds_left()) is not None:
            left = min(left, of_threads)
        return max(0.0, left)

    def _end_late(self) -> None:
        """Answer the puts whose time is over."""
        late = self._queue.take_late(time.monotonic())
        for waiter in late:
            waiter.finish(_TIMEOUT)
        self._wake_all()
        puts = self._later.take_late(time.monotonic())
        self._settle_all(puts, _TIMEOUT)
        threads = 0 if self._native is None else self._native.answer_late(_TIMEOUT)
        self._timeouts.add(len(late) + len(puts) + threads)

    # --- end ---

    def close(self) -> None:
        """Sync the rest, release all puts and end both threads; raises the last sync's error."""
        self._closing = True
        self._wakeup.notify()
        try:
            for thread in self._threads[:1]:
                thread.join()
        finally:
            self._over.set()
        for thread in self._threads[1:]:
            thread.join()
        if self._failure is not None:
            raise _fresh(self._failure)
        if self._log is not None:
            self._log.sync()


def _settle_nothing(*_: object) -> None:
    """Settle nothing: no put has been registered."""


def _fresh(error: Exception) -> Exception:
    return error.for_waiter() if isinstance(error, StoreFailed) else error


class Gathering:
    """Decides whether a sync waits for the puts that the previous sync released.

    Without waiting, concurrent puts split into two halves. Puts released by one sync return while
    the next one runs, so that each sync serves only half of them. If they return soon, compared
    with the duration of a sync, waiting pays off. Otherwise it is tried ever more rarely.
    """

    def __init__(self) -> None:
        self._mean_seconds = 0.0
        self._skip = 0
        self._skipped = 0

    def synced(self, seconds: float) -> None:
        """Record the duration of a sync."""
        self._mean_seconds += (seconds - self._mean_seconds) * _WEIGHT

    def patience_seconds(self) -> float:
        """Seconds to wait now; 0 if a wait does not pay off."""
        if self._mean_seconds < SLOW_SECONDS:
            return 0.0
        if self._skipped < self._skip:
            self._skipped += 1
            return 0.0
        self._skipped = 0
        return min(self._mean_seconds * MOST_OF_A_SYNC, MOST_SECONDS)

    def ended(self, *, in_time: bool) -> None:
        """Record the end of a wait; ``in_time`` is whether all puts returned within it."""
        self._skip = 0 if in_time else min(max(1, 2 * self._skip), MOST_SKIPPED)


class TimeoutLog:
    """Logs the number of puts that were not durable in time, once per second; thread-safe."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_ms = timeout_seconds * 1000
        self._count = 0
        self._logged_s = -EVERY_SECONDS
        self._lock = Mutex()

    def add(self, count: int) -> None:
        """Add to the count, and log it if the last line is old enough."""
        with self._lock:
            self._count += count
        if time.monotonic() - self._logged_s >= EVERY_SECONDS:
            self.write()

    def write(self) -> None:
        """Log the count since the last line, unless it is zero."""
        with self._lock:
            count, self._count = self._count, 0
            if count:
                self._logged_s = time.monotonic()
        if count:
            _log.warning(
                "%d puts were not durable within %.0f ms; their messages are in the log",
                count,
                self._timeout_ms,
            )


W = TypeVar("W", Waiter, AppendedPut)


class WaitQueue(Generic[W]):
    """The waiting puts, in order of arrival; all have the same time limit.

    Any thread appends to ``waiting`` without a lock. The thread that removes a put by a ``take``
    method must answer it.

    :ivar timeout_seconds: longest wait of each put
    :ivar waiting: the puts in order of arrival
    """

    def __init__(self, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self.waiting: deque[W] = deque()
        self._taking = Mutex()

    def take_covered(self, flushed: int) -> list[W]:
        """Remove and return the puts at the front that end at or before offset ``flushed``.

        A durable put behind one that is not durable waits for the next sync, which follows at once.
        """
        waiting, taken = self.waiting, list[W]()
        with self._taking:
            # No function is called, in which a finalizer could take puts, before `popleft`.
            while waiting and waiting[0].end_offset <= flushed:
                taken.append(waiting.popleft())
        return taken

    def take_late(self, now: float) -> list[W]:
        """Remove and return the puts whose deadline is not after ``now`` (``time.monotonic``)."""
        return self._take(lambda waiter: waiter.deadline <= now)

    def take_all(self) -> list[W]:
        """Remove and return all puts."""
        return self._take(lambda _: True)

    def _take(self, wanted: Callable[[W], bool]) -> list[W]:
        waiting, taken = self.waiting, list[W]()
        with self._taking:
            while waiting and wanted(first := waiting[0]):
                if waiting and waiting[0] is first:  # not taken in `wanted`, by a finalizer
                    taken.append(waiting.popleft())
        return taken

    def seconds_left(self, now: float) -> float:
        """Seconds until the first deadline, the earliest of all; without puts, the whole limit."""
        with self._taking:
            if self.waiting:
                return self.waiting[0].deadline - now
        return self.timeout_seconds
