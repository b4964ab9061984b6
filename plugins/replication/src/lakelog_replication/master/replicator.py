"""``rocketmq-ha`` as master: serves slaves, and lets puts wait until enough of them have the bytes.

In the leading process the thread of the connections answers puts after each report. If puts wait
one by one, each reads the reports itself (:class:`_DrivingPut`). In the other processes a thread
waits on the word ``copied`` of the shared page. The same thread ends waits at their deadline. It
also syncs if only durable bytes are sent and the flush strategy lets no put wait for the disk.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final

import attrs

from lakelog.errors import PutRefused, StoreFailed
from lakelog.hooks import Context, CopiedEnd, Outcome, ReplicatedLog
from lakelog.results import PutStatus
from lakelog.runtime import forks, threads
from lakelog.runtime.locks import LockFreeEvent, Mutex
from lakelog_replication.master.server import HaServer
from lakelog_replication.settings import RocketmqHaSettings

_PUT_OK: Final = PutStatus.PUT_OK
_TIMEOUT: Final = PutStatus.FLUSH_SLAVE_TIMEOUT
_TICK_SECONDS: Final = 0.1
"""Upper bound for the delay of an answer if a process begins or ends to lead meanwhile."""


class HaMaster:
    """Serves slaves in the process that runs the services; makes puts of all processes wait.

    :ivar answers_at_once: whether no put waits for copies; the log then need not pass puts to
        :meth:`submit`, as the sending thread watches the log itself
    """

    def __init__(self, settings: RocketmqHaSettings, context: Context) -> None:
        self.answers_at_once = settings.in_sync_replicas == 1
        self.timeout_ms = settings.slave_timeout_ms
        self._settings = settings
        self._context = context
        self._waits = CopyWaits(settings)
        self._server: HaServer | None = None
        self._log: ReplicatedLog | None = None
        self._lock = Mutex()
        forks.register_forked(self)

    @property
    def port(self) -> int | None:
        """The bound port for slaves; ``None`` if another process leads."""
        server = self._server
        return None if server is None else server.port

    def start(self, log: ReplicatedLog) -> None:
        """Serve the slaves if this process leads, and begin to let puts wait.

        Raises :class:`~lakelog.errors.ThreadNotStarted`.
        """
        with self._lock:
            self._log = log
            if self._settings.in_sync_replicas > 1:
                self._waits.start(log)
            if self._server is not None:
                self._begin(self._server, log)

    def lead(self) -> None:
        """Bind the port; serve the slaves once :meth:`start` was called.

        Raises :class:`~lakelog.errors.StoreError` if the port cannot be bound.
        """
        with self._lock:
            if self._server is not None:
                return
            server = HaServer(self._settings, self._context, self._copied, self._waits.has_waits)
            try:
                if self._log is None:
                    server.bind()
                else:
                    self._begin(server, self._log)
            except BaseException:  # Ctrl-C too
                server.close()
                raise
            self._server = server

    def _begin(self, server: HaServer, log: ReplicatedLog) -> None:
        log.copies.publish(-1)  # the value may be from a leading process that was killed
        self._waits.leads = True
        server.start(log)
        log.on_synced = server.notify

    def stop_leading(self) -> None:
        """Close the port; slaves then reconnect to the next process that leads."""
        with self._lock:
            server, self._server = self._server, None
            self._waits.leads = False
            if server is not None:
                server.close()
                if self._log is not None:
                    self._log.copies.publish(-1)

    def _copied(self, reachable_end: int) -> None:
        assert self._log is not None  # the server has started
        self._log.copies.publish(reachable_end)
        self._waits.answer()

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Wake the sending thread if it sleeps; return the status of a put, or its future.

        :param end_offset: physical offset of the put's end, in bytes
        """
        server = self._server
        if server is not None:
            server.notify()
        if not wait or self.answers_at_once:
            return _PUT_OK
        return self._waits.submit(end_offset, server)

    def close(self) -> None:
        """Wait at most ``close_timeout_ms`` until connected slaves have the log; then stop."""
        timeout_s = self._settings.close_timeout_ms / 1000
        try:
            if self._server is not None:
                self._server.drain(timeout_s)
            self._waits.close(timeout_s)
        finally:
            self.stop_leading()

    def forked(self) -> None:
        """Close the parent's descriptors in a forked child.

        Otherwise the slaves' connections would stay open after the end of the parent.
        """
        server, self._server = self._server, None
        if server is not None:
            server.forked()


class RefusingHaMaster(HaMaster):
    """Also refuses puts before their append."""

    def admit(self, length: int) -> None:
        """Raise :class:`~lakelog.errors.PutRefused` unless enough slaves are in sync."""
        self._waits.admit(length)


class CopyWaits:
    """The waiting puts of this process; thread-safe.

    :ivar leads: whether this process calls :meth:`answer` for each report
    """

    def __init__(self, settings: RocketmqHaSettings) -> None:
        self.leads = False
        self._timeout_s = settings.slave_timeout_ms / 1000
        self._need = settings.in_sync_replicas
        self._max_gap_bytes = settings.max_gap_bytes
        self._only_durable = settings.send == "flushed"
        self._waiting: list[_Waiting] = []  # a heap
        self._last = 0  # the number of the last put
        self._lock = Mutex()
        self._wakeup = LockFreeEvent()
        self._rests = False
        self._closing = False
        self._log: ReplicatedLog | None = None
        self._thread: Thread | None = None

    def start(self, log: ReplicatedLog) -> None:
        """Start the thread."""
        self._log = log
        self._syncs = self._only_durable and not log.waits_for_disk
        thread = Thread(target=self._run, args=(log,), name="lakelog-ha-waits", daemon=True)
        self._thread = threads.started(thread)

    def submit(self, end_offset: int, server: HaServer | None) -> Outcome:
        """Return the status of a put whose bytes end at ``end_offset``, or its future.

        :param end_offset: physical offset in bytes
        :param server: the server of the connections, if this process leads
        :returns: ``SLAVE_NOT_AVAILABLE`` at once if too few slaves are connected, or if they are
            too far behind
        """
        log = self._log
        if log is None or self._closing:
            return PutStatus.SLAVE_NOT_AVAILABLE
        copies = log.copies
        if copies.end >= end_offset:
            return _PUT_OK
        if not self._is_in_sync(log, end_offset):
            return PutStatus.SLAVE_NOT_AVAILABLE
        deadline = time.monotonic() + self._timeout_s
        if server is not None and server.lending.is_lent and not self._syncs:
            return _DrivingPut(end_offset, deadline, self, server, copies)
        future = self.join(end_offset, deadline)
        if server is not None:
            server.lending.joined(is_alone=len(self._waiting) == 1 and not self._syncs)
        return future

    def join(self, end_offset: int, deadline: float) -> Future[PutStatus]:
        """Let a put wait for other threads.

        :param deadline: seconds of ``time.monotonic``
        """
        future: Future[PutStatus] = Future()
        if self._closing:
            future.set_result(_TIMEOUT)
            return future
        with self._lock:
            self._last += 1
            heapq.heappush(self._waiting, _Waiting(end_offset, self._last, deadline, future))
            is_first = len(self._waiting) == 1
        if self._rests or self._syncs or (is_first and not self.leads):
            self._wakeup.set()
        if self._log is not None and self._log.copies.end >= end_offset:
            self.answer()  # the report came before the put was in the heap
        return future

    def has_waits(self) -> bool:
        """Whether puts wait for other threads."""
        return bool(self._waiting)

    def admit(self, length: int) -> None:
        """Raise ``PutRefused`` unless enough slaves are in sync for a put of ``length`` bytes."""
        log = self._log
        if log is not None and self._is_in_sync(log, log.appended + length):
            return
        raise PutRefused(
            PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
            f"fewer than {self._need} copies are in sync, this store included; nothing was "
            "appended; see `lakelog replication status`",
        )

    def _is_in_sync(self, log: ReplicatedLog, end_offset: int) -> bool:
        """Whether enough slaves are connected, and not too far behind ``end_offset``."""
        reachable = log.copies.reachable_end
        return reachable >= 0 and end_offset - reachable <= self._max_gap_bytes

    def answer(self) -> None:
        """Resolve the futures of the puts whose bytes enough slaves have."""
        log = self._log
        end = -1 if log is None else log.copies.end
        ready = list[_Waiting]()
        with self._lock:
            while self._waiting and self._waiting[0].end_offset <= end:
                ready.append(heapq.heappop(self._waiting))
        try:
            for each in ready:
                each.future.set_result(_PUT_OK)
        finally:  # a signal handler may have raised
            for each in ready:
                if not each.future.done():
                    each.future.set_result(_PUT_OK)

    def close(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` for the waiting puts; then end their waits and the thread.

        The status of the remaining puts is ``FLUSH_SLAVE_TIMEOUT``.
        """
        deadline = time.monotonic() + timeout_s
        while self._waiting and time.monotonic() < deadline:
            time.sleep(0.001)
        self._closing = True
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join()
        for each in self._taken(lambda _: True):
            each.future.set_result(_TIMEOUT)

    # --- the thread ---

    def _run(self, log: ReplicatedLog) -> None:
        """Sync for waiting puts if that is this thread's task, answer them, and end late waits."""
        seen = -1
        while not self._closing:
            first = self._first()
            if first is None and seen == self._last:
                self._rest()
                continue
            # In the leading process the sender answers. A wake-up of this thread for each put costs
            # as much as the put. So it checks deadlines at intervals until no more puts come.
            seen = self._last
            self._sync(log)
            left = _TICK_SECONDS
            if first is not None:
                left = min(first.deadline - time.monotonic(), left)
            if self.leads or first is None:
                self._wakeup.wait(max(left, 0))
                self._wakeup.clear()
            else:
                log.copies.wait(first.end_offset, left)
            self.answer()
            self._end_late()

    def _rest(self) -> None:
        """Sleep until a put waits."""
        self._rests = True
        if self._first() is None and not self._closing:
            self._wakeup.wait()
        self._rests = False
        self._wakeup.clear()

    def _first(self) -> _Waiting | None:
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def _sync(self, log: ReplicatedLog) -> None:
        """Sync the waiting puts' bytes; a failure of the store ends their waits."""
        with self._lock:
            last = max((each.end_offset for each in self._waiting), default=0)
        if not self._syncs or log.flushed >= last:
            return
        try:
            log.try_sync()
        except StoreFailed as error:
            for each in self._taken(lambda _: True):
                each.future.set_exception(error.for_waiter())

    def _end_late(self) -> None:
        now = time.monotonic()
        for each in self._taken(lambda each: each.deadline <= now):
            each.future.set_result(_TIMEOUT)

    def _taken(self, wanted: Callable[[_Waiting], bool]) -> list[_Waiting]:
        """Remove and return the waiting puts for which ``wanted`` is true."""
        with self._lock:
            taken = [each for each in self._waiting if wanted(each)]
            if taken:
                self._waiting = [each for each in self._waiting if not wanted(each)]
                heapq.heapify(self._waiting)
        return taken


@attrs.define(order=True)
class _Waiting:
    end_offset: int
    number: int
    deadline: float = attrs.field(order=False)
    future: Future[PutStatus] = attrs.field(order=False)


@attrs.define(eq=False)
class _DrivingPut:
    """The outcome of a put whose own thread reads the reports once it waits."""

    _end_offset: int
    _deadline: float
    _waits: CopyWaits
    _server: HaServer
    _copies: CopiedEnd
    _joined: Future[PutStatus] | None = None

    def result(self, timeout: float | None = None) -> PutStatus:
        """Read reports until enough slaves have the bytes, or wait for other threads.

        :param timeout: seconds; ``None`` waits until the put's own deadline

        Raises ``TimeoutError`` and :class:`~lakelog.errors.StoreFailed`.
        """
        lending = self._server.lending
        if (
            self._joined is None
            and timeout is None
            and lending.drive(self._copies, self._end_offset, self._deadline)
        ):
            return _PUT_OK
        return self._future(is_alone=timeout is None).result(timeout)

    def done(self) -> bool:
        """Whether the status is known."""
        return self._copies.end >= self._end_offset or self._future().done()

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call ``fn`` once the status is known."""
        self._future().add_done_callback(fn)

    def _future(self, *, is_alone: bool = False) -> Future[PutStatus]:
        if self._joined is None:
            self._joined = self._waits.join(self._end_offset, self._deadline)
            self._server.lending.joined(is_alone=is_alone)
        return self._joined
