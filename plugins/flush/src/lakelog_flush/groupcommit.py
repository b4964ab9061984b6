"""``group-commit``: puts wait until their bytes are durable, and all that wait share one sync.

As RocketMQ's ``GroupCommitService``, but for its faults: a put is answered by a sync that covers it
and began after its bytes were written, and after a sync that failed nobody hears that all is well.
One thread syncs. Another watches the clock, so that a sync that hangs holds up nobody for longer
than ``sync_flush_timeout_ms``; a put that synced in its own thread, which would save two changes of
threads, could not be ended.

A put that waits alone in its process waits at the word that all processes share, and asks for a
sync only where nobody syncs: so one process syncs for many. Those beside it stand in a line, and
are woken one by one: threads that are woken together fight for the interpreter lock.
"""

from __future__ import annotations

import copy
import time
from threading import Event, Lock, Thread, get_ident
from typing import Final

from lakelog.errors import StoreFailed
from lakelog.interfaces import Context, Flushable, Outcome
from lakelog.runtime.threads import started
from lakelog.status import PutStatus
from lakelog_flush.bell import Bell
from lakelog_flush.gathering import MOST_SECONDS, Gathering
from lakelog_flush.line import Line
from lakelog_flush.settings import GroupCommitSettings
from lakelog_flush.tardy import Tardy
from lakelog_flush.waiter import Rousing, Waiter

TICK_SECONDS: Final = 0.5
"""How long a ring could be lost at most, if one could."""
_BEHIND_ALL: Final = 1 << 63
"""No put ends there."""
_PUT_OK: Final = PutStatus.PUT_OK
_TIMEOUT: Final = PutStatus.FLUSH_DISK_TIMEOUT


class GroupCommit:
    """One thread syncs for all."""

    answers_later = True
    waits_for_disk = True

    def __init__(self, settings: GroupCommitSettings) -> None:
        self._line = Line(settings.sync_flush_timeout_ms / 1000)
        self._at_word = Lock()
        self._waiting = self._line.waiting
        self._bell = Bell()
        self._tardy = Tardy(self._line.timeout_seconds)
        self._gathering = Gathering()
        self._rousing = Rousing(self._roused)
        self._wanted = 0
        self._owed = 0
        self._asked = False
        self._over = Event()
        self._closing = False
        self._ended = False
        self._failure: Exception | None = None
        self._log: Flushable | None = None
        self._threads: list[Thread] = []
        self._flusher: int | None = None
        self._watcher: int | None = None

    def start(self, log: Flushable) -> None:
        """Start the thread that syncs, and the one that watches."""
        self._log = log
        flusher = Thread(target=self._flush, args=(log,), name="lakelog-group-commit", daemon=True)
        watcher = Thread(target=self._watch, name="lakelog-group-commit-watcher", daemon=True)
        for thread in (flusher, watcher):
            self._threads.append(started(thread))  # each at once: close() ends the first alone, too
        self._flusher, self._watcher = flusher.ident, watcher.ident

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Give back what waits; who does not wait wakes the flusher."""
        if wait:
            deadline = time.monotonic() + self._line.timeout_seconds
            return Waiter(end_offset, deadline, self._serve)
        self._owed = end_offset
        self._bell.ring()
        return _PUT_OK

    def _serve(self, waiter: Waiter, sleeps: bool) -> None:
        """Wait at the word, where nobody else of this process does; else join the line."""
        here = get_ident()
        if not sleeps or self._waiting or here in (self._flusher, self._watcher):
            self._join(waiter)
            self._serve_here(waiter, here)
        elif self._at_word.acquire(blocking=False):
            try:
                self._wait_at_word(waiter)
            finally:
                self._at_word.release()
        else:
            self._join(waiter)

    def _join(self, waiter: Waiter) -> None:
        self._waiting.append(waiter)
        if waiter.end_offset >= self._wanted:
            self._bell.ring()
        if self._ended:  # behind the append: the flusher may have left before
            self._answer_late()

    def _wait_at_word(self, waiter: Waiter) -> None:
        log, left = self._log, waiter.deadline - time.monotonic()
        try:
            in_time = log is None or log.wait_flushed(waiter.end_offset, left, self._ask)
        except StoreFailed as error:
            waiter.finish(error)
            return
        except BaseException:  # Ctrl-C; the put may be asked again what became of it
            self._join(waiter)
            raise
        waiter.finish(_PUT_OK if in_time else _TIMEOUT)
        if not in_time:
            self._tardy.add(1)

    def _ask(self) -> None:
        """Have the flusher sync, unless somebody does."""
        self._asked = True
        self._bell.ring()
        if self._ended and self._log is not None:  # behind the ring: it may have left before
            self._log.try_sync()

    def _answer_late(self) -> None:
        """The flusher is gone: for a failure, or because the store is being closed."""
        try:
            if self._failure is None and self._log is not None:
                self._answer(self._log.sync())
        except Exception as error:  # noqa: BLE001  # whatever it is: nobody waits for ever
            self._failure = error
        if self._failure is not None:
            self._fail_all(self._failure)
        self._rousing.end()

    def _serve_here(self, waiter: Waiter, here: int) -> None:
        """A callback puts and waits in one of our threads, where nobody else would answer it."""
        log = self._log
        while here == self._flusher and log is not None and not waiter.done():
            self._answer(log.sync())
        while here == self._watcher and not waiter.done():
            self._over.wait(self._seconds_left())
            self._end_late()

    def wake(self) -> None:
        """A staged writer has committed something, or failed."""
        self._asked = True
        self._bell.ring()

    # --- the thread that syncs ---

    def _flush(self, log: Flushable) -> None:
        try:
            while not self._closing or self._has_work():
                self._bell.sleep(TICK_SECONDS, self._has_work)
                if self._waiting or log.flushed < self._owed:
                    self._sync(log)
                elif self._asked:
                    self._asked = False
                    log.try_sync()
                else:
                    self._rousing.go_on()
        except Exception as error:  # noqa: BLE001  # whatever it is: nobody waits for ever
            self._failure = error
        self._ended = True
        self._answer_late()

    def _sync(self, log: Flushable) -> None:
        before, begun = log.flushed, time.monotonic()
        flushed = log.sync()
        took, wanted = time.monotonic() - begun, log.appended + flushed - before
        self._gathering.synced(took)
        answered = self._answer(flushed)
        if self._rousing:
            self._rouse(took)
        if answered > 1 or self._waiting:
            self._gather(log, wanted)

    def _rouse(self, seconds: float) -> None:
        """Let those who are being woken come back, so that the next sync is not for a few."""
        deadline = time.monotonic() + min(seconds, MOST_SECONDS)
        self._wanted = _BEHIND_ALL
        while self._rousing and (left := deadline - time.monotonic()) > 0:
            self._bell.sleep(left, self._rousing.is_over)
        self._wanted = 0

    def _roused(self) -> None:
        if self._wanted == _BEHIND_ALL:
            self._bell.ring()

    def _gather(self, log: Flushable, wanted: int) -> None:
        """Let as many bytes come as were made durable, if that is worth while."""
        patience = self._gathering.patience_seconds()
        if not patience:
            return

        def enough() -> bool:
            return self._closing or log.appended >= wanted

        deadline = time.monotonic() + patience
        self._wanted = wanted
        while not enough() and (left := deadline - time.monotonic()) > 0:
            self._bell.sleep(left, enough)
        self._wanted = 0
        self._gathering.ended(in_time=log.appended >= wanted and time.monotonic() <= deadline)

    def _has_work(self) -> bool:
        if self._waiting or self._asked:
            return True
        log = self._log
        return log is not None and log.flushed < self._owed

    def _answer(self, flushed: int) -> int:
        covered = self._line.take_covered(flushed)
        self._rousing.begin(covered, _PUT_OK)
        return len(covered)

    def _fail_all(self, error: Exception) -> None:
        for waiter in self._line.take_all():
            waiter.finish(_fresh(error))

    # --- the thread that watches ---

    def _watch(self) -> None:
        while not self._over.wait(self._seconds_left()):
            self._end_late()
        self._tardy.tell()

    def _seconds_left(self) -> float:
        return max(0.0, self._line.seconds_left(time.monotonic()))

    def _end_late(self) -> None:
        late = self._line.take_late(time.monotonic())
        for waiter in late:
            waiter.finish(_TIMEOUT)
        self._rousing.end()
        self._tardy.add(len(late))

    # --- end ---

    def close(self) -> None:
        """Sync what is left, answer everyone, end both threads; raises what the last sync did."""
        self._closing = True
        self._bell.ring()
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


def _fresh(error: Exception) -> Exception:
    """One for each who waits: raising adds to an error, and threads must not share that."""
    if not isinstance(error, StoreFailed):
        return error
    made = copy.copy(error)
    made.__cause__ = error.__cause__
    return made


def make(settings: GroupCommitSettings, _context: Context) -> GroupCommit:
    """Build the strategy from its section."""
    return GroupCommit(settings)
