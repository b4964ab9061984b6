"""Serves all slaves of one log in one thread; a second thread waits for appends and syncs.

While puts wait one by one, their own threads serve the slaves (:class:`Lending`). Pins protect the
log from deletion until slaves have received it, up to a limit (:func:`hold_for_slaves`).
"""

from __future__ import annotations

import errno
import logging
import os
import re
import select
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from threading import RLock, Thread
from typing import Final

from lakelog.errors import LakelogError, StoreError, raised_by_handler
from lakelog.files.filesystem import FileSystem
from lakelog.hooks import Context, CopiedEnd, ReplicatedLog
from lakelog.maintenance.pins import Pin, read_pins, write_pin
from lakelog.runtime import threads
from lakelog.runtime.locks import LockFreeEvent, Mutex
from lakelog_daemon.connection_limits import (
    Admission,
    ConnectionLimits,
    RareLines,
    descriptors_for_peers,
)
from lakelog_daemon.replication_status import SLAVE_PINS, MasterStatus, SlaveStatus, write_status
from lakelog_replication.master.link import LinkEnded, SlaveLink
from lakelog_replication.settings import RocketmqHaSettings, tls_context

_LOG: Final = logging.getLogger("lakelog")
_MOST_LINKS: Final = 100
_SHARE: Final = 8
"""The share of the descriptors of peers that connections may have; each also has an open file."""
_TURN_SECONDS: Final = 1.0
"""Longest interval between two updates of pins and status, and two attempts to bind the port."""
_WATCH_SECONDS: Final = 0.05
_POLL_SECONDS: Final = 0.005
_REST_SECONDS: Final = 1.0
"""A process that has not appended for this long counts as idle."""
_LONE_SECONDS: Final = 0.0005
"""Time within which a thread of this process calls ``notify`` after it appended or synced."""
_NEVER: Final = 1 << 62
_MOST_REFUSED: Final = 100
_NUMBER: Final = re.compile(r"\d+")
LENT_SECONDS: Final = 0.005
"""Interval at which the thread of the connections checks them while they are lent."""
_UNUSED_SECONDS: Final = 1.0
"""Time without a put after which the connections are taken back."""
_SLOW_SECONDS: Final = 0.02
"""The connections are taken back from a put that waits for longer."""
_NAP_SECONDS: Final = 0.05
_LONE_PUTS: Final = 8
"""Number of consecutive puts that waited alone, after which the connections are lent."""
_RENEW_MS: Final = 60_000
"""Interval at which a connected slave's pin is renewed, before it expires
(``maintenance.pin_expires_after_ms``)."""


class HaServer:
    """The port for slaves, their connections, and their reports.

    :ivar port: the port for slaves, once it is bound
    :ivar lending: lends the connections to putting threads
    """

    def __init__(
        self,
        settings: RocketmqHaSettings,
        context: Context,
        on_copied: Callable[[int], None],
        has_waits: Callable[[], bool],
    ) -> None:
        """Prepare.

        :param on_copied: called on each change of the end offset that enough connected slaves
            have, with that offset; -1 if too few are connected
        :param has_waits: returns whether puts wait for a call of ``on_copied``
        """
        self.port = settings.port
        self._settings = settings
        self._path = context.path
        self._files = context.files
        self._on_copied = on_copied
        self._has_waits = has_waits
        self._tls = tls_context(settings, ssl.Purpose.CLIENT_AUTH)
        self._allowed = [ip_network(each) for each in settings.allow]
        self._learning = [ip_network(each) for each in settings.learners]
        self._listener: socket.socket | None = None
        self._links: dict[SlaveLink, int] = {}  # with the time of the connect, ms since 1970
        self._places: dict[SlaveLink, Admission] = {}
        self._lines = RareLines(_LOG)
        self._limits = ConnectionLimits(
            most=_MOST_LINKS,
            most_descriptors=lambda: descriptors_for_peers() // _SHARE,
            first_request_s=settings.silence_timeout_ms / 1000,
            idle_s=settings.silence_timeout_ms / 1000,
            lines=self._lines,
        )
        self._reachable = -1
        self._refused: dict[str, str] = {}
        self._wakeup_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wakeup_poll = select.poll()
        self._wakeup_poll.register(self._wakeup_fd, select.POLLIN)
        self.lending = Lending(self, self._wake)
        self._waking = Mutex()
        self._idle_end = -1
        self._idle = LockFreeEvent()
        self._over = LockFreeEvent()
        self._notified_count = 0
        self._watched_until = 0.0
        self._notified_end = self._foreign_end = -1
        self._closing = False
        self._has_changed = True
        self._shown_end = -1
        self._threads: list[Thread] = []
        self._log: ReplicatedLog | None = None

    def bind(self) -> None:
        """Bind the port; raises :class:`~lakelog.errors.StoreError`."""
        host, port = self._settings.host, self._settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=_MOST_LINKS)
        except OSError as error:
            number = error.errno or 0  # below 0: the name of the host is not known
            why = os.strerror(number) if number > 0 else str(error)
            raise StoreError(
                f"slaves cannot be served at {host or 'every address'}, port {port}: {why}; set "
                "rocketmq-ha.host and rocketmq-ha.port to an address of this machine and a free "
                "port",
                path=self._path,
            ) from error
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    def start(self, log: ReplicatedLog) -> None:
        """Start the threads; bind the port if it is not bound yet, and retry if that fails."""
        self._log = log
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakeup_fd, selectors.EVENT_READ, self._drain_wakeup)
        if self._listener is None:
            self._bind_again()
        else:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        watch = partial(self._watch, log)
        for name, run in (("lakelog-ha", self._run), ("lakelog-ha-watch", watch)):
            self._threads.append(threads.started(Thread(target=run, name=name, daemon=True)))

    def notify(self) -> None:
        """Wake the thread of the connections if it sleeps and has bytes to send; cheap otherwise.

        Threads of this process call it after they appended to the log or synced it.
        """
        self._notified_count += 1
        if self._log is not None:
            self._notified_end = self._end(self._log)
            if self._notified_end == self._foreign_end:  # this process appended, not another one
                self._watched_until = 0.0
        self._wake_for_more()

    def _wake_for_more(self) -> None:
        if self._log is None or not 0 <= self._idle_end < self._end(self._log):
            return
        if not self.lending.send():
            self._idle_end = -1
            self._wake()

    def _wake(self) -> None:
        with self._waking, suppress(BlockingIOError):
            if self._wakeup_fd >= 0:
                os.eventfd_write(self._wakeup_fd, 1)

    def _end(self, log: ReplicatedLog) -> int:
        return log.flushed if self._settings.send == "flushed" else log.committed

    # --- end ---

    def drain(self, timeout_s: float) -> None:
        """Wait until the connected slaves have the log, at most ``timeout_s``."""
        if self._log is None:
            return
        end, deadline = self._end(self._log), time.monotonic() + timeout_s
        while time.monotonic() < deadline and not all(each.has_all(end) for each in [*self._links]):
            self.notify()
            time.sleep(0.002)

    def close(self) -> None:
        """Close the port and all connections, and end the threads."""
        self._closing = True
        self._wake()
        self._idle.set()
        self._over.set()
        for each in self._threads:
            each.join()
        self.lending.take_back()
        with self.lending.use_lock:
            self.drop()

    def forked(self) -> None:
        """Close all descriptors in a forked child, which has copies of them, and no thread."""
        self._waking = Mutex()  # a thread of the parent may hold the other one
        self._closing = True
        self.drop()

    def drop(self) -> None:
        """Close all descriptors."""
        for link in [*self._links]:
            link.close()
        self._links.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._log is not None:
            self._selector.close()
        self.lending.drop()
        with self._waking:  # a thread that syncs may call at any time
            os.close(self._wakeup_fd)
            self._wakeup_fd = -1

    # --- the thread of the connections ---

    def _run(self) -> None:
        """Serve until :meth:`close`; try again to bind the port where that failed."""
        looked = 0.0
        while not self._closing:
            try:
                if self.lending.is_lent:
                    self._serve_while_lent()
                else:
                    self._turn(_TURN_SECONDS)
                    self.lending.lend()
                if time.monotonic() - looked >= _TURN_SECONDS:
                    looked = time.monotonic()
                    if self._listener is None:
                        self._bind_again()
            except Exception:  # noqa: BLE001  # the thread must go on, or puts would wait in vain
                _LOG.exception("%s: a turn of the replication failed", self._path)
                time.sleep(_WATCH_SECONDS)

    def _serve_while_lent(self) -> None:
        """Sleep; then serve the connections if no put does, or take them back."""
        is_notified = self._wakeup_poll.poll(LENT_SECONDS * 1000)
        if is_notified or self._closing or not self._is_idle():
            self.lending.take_back()
        else:
            self.lending.serve_if_idle(lambda: self._turn(0.0))

    # --- the connections, as they are lent ---

    def has_more(self) -> bool:
        """Whether the log has bytes that were not sent."""
        return self._log is not None and self._idle_end < self._end(self._log)

    def _is_idle(self) -> bool:
        return self._idle_end >= 0 and not any(each.is_blocked for each in [*self._links])

    def may_be_lent(self) -> bool:
        """Whether the putting threads alone can do all the work of the connections."""
        is_ours = self._tls is None and time.monotonic() >= self._watched_until
        return is_ours and self._is_idle() and not self._has_waits()

    def take_reports(self, descriptors: Set[int]) -> None:
        """Read the reports that the sockets with these descriptors received."""
        for link in [each for each in self._links if each.fileno() in descriptors]:
            self._handle_events(link, selectors.EVENT_READ)
        self._account()

    def _turn(self, longest_s: float) -> None:
        """Send to all slaves; wait for events at most ``longest_s``, and handle them."""
        with self.lending.use_lock:
            due = self.send()
        ready = self._selector.select(min(due, longest_s))
        with self.lending.use_lock:
            for key, mask in ready:
                if isinstance(key.data, SlaveLink):
                    self._handle_events(key.data, mask)
                else:
                    key.data()
            self._account()

    def send(self) -> float:
        """Send the unsent bytes; return for how many seconds to wait for reports."""
        log, now, more = self._log, time.monotonic(), False
        assert log is not None  # start was called
        end = self._end(log)
        for link in [*self._links]:
            more |= self._guarded(link, partial(link.turn, end, now))
            self._register_events(link)
        self._account()
        if more or self._end(log) > end:
            return 0.0
        if self._links:
            self._idle_end = end
            if now < self._watched_until:
                self._idle.set()
            if self._end(log) > end:
                return 0.0
        return min((each.due(now) for each in [*self._links]), default=_TURN_SECONDS)

    def _handle_events(self, link: SlaveLink, mask: int) -> None:
        """Let a connection write or read, as ``mask`` says."""
        assert self._log is not None  # start was called
        before = link.acked
        if mask & selectors.EVENT_WRITE:
            self._guarded(link, link.writable)
        if mask & selectors.EVENT_READ:
            self._guarded(link, partial(link.receive, self._end(self._log), time.monotonic()))
        self._has_changed |= link.acked != before
        if before < 0 <= link.acked and link in self._places:
            self._limits.wait(self._places[link], 1)  # one that has the log is silent, and stays
            self._limits.prove(self._places[link])

    def _guarded(self, link: SlaveLink, work: Callable[[], bool | None]) -> bool:
        """Call ``work``; if it fails, end this connection and log the reason."""
        if link not in self._links:
            return False
        try:
            return bool(work())
        except (LakelogError, OSError) as error:
            if raised_by_handler(error):  # in the thread of a put
                raise
            self._log_end(link, error)
        self._end_link(link)
        return False

    def _log_end(self, link: SlaveLink, error: LakelogError | OSError) -> None:
        if isinstance(error, LinkEnded):
            _LOG.info("%s: slave %s: %s", self._path, link.address, error)
        elif isinstance(error, LakelogError):
            self._refuse(link.address, str(error))
        elif isinstance(error, ssl.SSLError):
            self._refuse(link.address, f"it shows no certificate that is accepted here: {error}")
        else:
            _LOG.info("%s: slave %s: the connection broke: %s", self._path, link.address, error)

    def _end_link(self, link: SlaveLink) -> None:
        """Close a connection; may be called again if it was interrupted."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(link)
        self._links.pop(link, None)
        place = self._places.pop(link, None)
        if place is not None:
            self._limits.leave(place)
        link.close()
        self._has_changed = True

    def _register_events(self, link: SlaveLink) -> None:
        """Register the events for which the connection waits."""
        if link in self._links:
            wanted = selectors.EVENT_READ | selectors.EVENT_WRITE * link.is_blocked
            known = self._selector.get_map().get(link)
            if known is None:  # its end was interrupted
                self._end_link(link)
            elif known.events != wanted:
                self._selector.modify(link, wanted, link)

    def _refuse(self, address: str, why: str) -> None:
        """Note a refusal, and log it; refusals that differ by numbers only are of one kind."""
        if len(self._refused) >= _MOST_REFUSED:
            self._refused.clear()
        self._refused[address] = why
        kind = _NUMBER.sub("", why)
        self._lines.warning("%s: slave %s was refused: %s", self._path, address, why, kind=kind)
        self._has_changed = True

    # --- connections ---

    def _bind_again(self) -> None:
        try:
            self.bind()
        except StoreError as error:
            self._refuse("port", str(error))
            return
        assert self._listener is not None  # bind has made it
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _drain_wakeup(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wakeup_fd)

    def _accept(self) -> None:
        """Accept a connection, unless its address is not allowed or there are too many."""
        assert self._listener is not None  # it is registered
        try:
            sock, peer = self._listener.accept()
        except OSError as error:  # the slave has gone already, or descriptors are short
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._lines.warning("%s: no slave can be accepted now: %s", self._path, error)
                time.sleep(_WATCH_SECONDS)
            return
        address = plain_address(peer[0])
        if not any(address in each for each in self._allowed):
            why = "its address is not in rocketmq-ha.allow"
        elif (place := self._limits.admit(str(address), sock.close)) is None:
            why = f"there are {len(self._links)} connections, and no more are served"
        else:
            self._add_slave(sock, address, place)
            return
        sock.close()
        self._refuse(str(address), why)

    def _add_slave(
        self, sock: socket.socket, ip: IPv4Address | IPv6Address, place: Admission
    ) -> None:
        """Serve a new connection."""
        assert self._log is not None  # start was called
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        is_learner, now = any(ip in each for each in self._learning), time.monotonic()
        address = str(ip)
        link = SlaveLink(sock, address, self._log, self._settings, is_learner=is_learner, now=now)
        place.end = partial(self._end_link, link)
        self._links[link], self._places[link] = time.time_ns() // 1_000_000, place
        self._selector.register(link, selectors.EVENT_READ, link)
        self.lending.add(link.fileno())
        self._has_changed = True
        _LOG.info("%s: slave %s connected", self._path, address)

    def _account(self) -> None:
        """Publish the end offset that enough slaves have; connections of an address count once."""
        need = self._settings.in_sync_replicas - 1
        if not need:
            return
        best = sorted(self._acked(learners=False).values(), reverse=True)
        reachable = best[need - 1] if len(best) >= need else -1
        if reachable != self._reachable:
            self._on_copied(reachable)
            self._reachable = reachable

    def _acked(self, *, learners: bool) -> dict[str, int]:
        """The largest reported offset, by address."""
        best = dict[str, int]()
        for each in [*self._links]:
            if each.requested >= 0 and (learners or not each.is_learner):
                best[each.address] = max(each.acked, best.get(each.address, -1))
        return best

    # --- the thread that waits for the log ---

    def _watch(self, log: ReplicatedLog) -> None:
        """Wait for appends and syncs of any process, and wake the thread of the connections."""
        looked = self._look(log, -_TURN_SECONDS)
        count, notified_s = self._notified_count, -_REST_SECONDS
        while not self._closing:
            now = time.monotonic()
            if count != self._notified_count:
                count, notified_s = self._notified_count, now
            # A wake-up of this thread for each put costs as much as the put. So the thread polls
            # while only this process appends, and blocks until the log moves otherwise.
            if now < self._watched_until or now - notified_s >= _REST_SECONDS:
                self._await_move(log)
            else:
                self._poll(log)
            looked = self._look(log, looked)

    def _poll(self, log: ReplicatedLog) -> None:
        """Sleep for an interval; detect appends of another process, which do not :meth:`notify`."""
        self._over.wait(_POLL_SECONDS if self._links else _WATCH_SECONDS)
        count, end = self._notified_count, self._idle_end
        if 0 <= end < self._end(log):
            time.sleep(_LONE_SECONDS)
            if (count, end) == (self._notified_count, self._idle_end):
                self._keep_watch(log)
                self._wake_for_more()
                if self.lending.is_lent:
                    self._wake()

    def _keep_watch(self, log: ReplicatedLog) -> None:
        """Block on the log from now on: another process seems to append."""
        end = self._end(log)
        if end != self._notified_end:
            self._foreign_end, self._watched_until = end, time.monotonic() + _REST_SECONDS

    def _await_move(self, log: ReplicatedLog) -> None:
        """Wait until the log moves while the thread of the connections sleeps; wake that thread."""
        count, end = self._notified_count, self._idle_end
        if end < 0:
            self._idle.wait(_WATCH_SECONDS)
            self._idle.clear()
            return
        durable, committed = (end, _NEVER) if self._settings.send == "flushed" else (_NEVER, end)
        if log.wait_moved(durable, committed, _WATCH_SECONDS):
            self._wake_for_more()
            # This process may have moved the log; its call of `notify` comes a little later.
            if time.monotonic() >= self._watched_until - _REST_SECONDS / 2:
                time.sleep(_LONE_SECONDS)
                if count == self._notified_count:
                    self._keep_watch(log)

    def _look(self, log: ReplicatedLog, looked: float) -> float:
        """Move pins and write the status about once a second; return the time of the update."""
        now = time.monotonic()
        if now - looked < _TURN_SECONDS:
            return looked
        try:
            hold_for_slaves(
                *(self._files, self._path, self._acked(learners=True), self._end(log)),
                limit_bytes=self._settings.hold_bytes,
                segment_size_bytes=log.segment_size_bytes,
            )
            moved = bool(self._links) and self._end(log) != self._shown_end
            if self._has_changed or moved:  # the lag of a slave grows without a report of its own
                self._has_changed, self._shown_end = False, self._end(log)
                write_status(self._files, self._path, self._status(log))
        except (OSError, LakelogError) as error:
            self._refuse("pins", f"pins and status cannot be written: {error}")
        return now

    def _status(self, log: ReplicatedLog) -> MasterStatus:
        return MasterStatus(
            pid=os.getpid(),
            listening=f"{self._settings.host or '*'}:{self.port}",
            time_ms=time.time_ns() // 1_000_000,
            end=self._end(log),
            copied=log.copies.end,
            in_sync_replicas=self._settings.in_sync_replicas,
            slaves=tuple(
                SlaveStatus(
                    address=each.address,
                    sent=each.sent,
                    acked=each.acked,
                    learner=each.is_learner,
                    since_ms=since,
                )
                for each, since in [*self._links.items()]
            ),
            refused=dict(self._refused),
        )


class Lending:
    """Lends the connections to the threads of puts that wait for copies one by one; thread-safe.

    Without lending, such a put wakes the thread of the connections twice and is woken once by it.
    Each thread switch costs as much as the rest of the put. So the thread of the connections lends
    them: the putting thread sends its bytes itself, and reads reports until enough slaves have the
    bytes. The thread of the connections serves them only while no put does. It takes them back when
    the putting thread alone cannot do all the work: a second put waits, another process appends to
    the log, or a socket takes no more bytes.

    A putting thread may be the main thread, where a signal handler may raise anywhere. The state of
    a connection stays consistent then (:mod:`.link`). A handler may itself put while it interrupts
    a use of the connections. That put gets ``FLUSH_SLAVE_TIMEOUT``: the thread of the connections
    cannot use them before the handler returns.

    :ivar is_lent: whether a put that waits may call :meth:`drive`
    :ivar use_lock: held by the thread that uses the connections
    """

    def __init__(self, connections: HaServer, wake: Callable[[], object]) -> None:
        """Prepare.

        :param connections: whose :meth:`HaServer.send` and the like the putting threads call
        :param wake: wakes the thread of the connections
        """
        self.is_lent = False
        self.use_lock = RLock()
        self._connections = connections
        self._wake = wake
        self._drive_lock = RLock()
        self._holds_use_lock: Callable[[], bool] = self.use_lock._is_owned  # type: ignore[attr-defined]  # threading.Condition calls it, too; no public method returns the holder
        self._holds_drive_lock: Callable[[], bool] = self._drive_lock._is_owned  # type: ignore[attr-defined]  # threading.Condition calls it, too; no public method returns the holder
        self._lone_puts = 0
        self._driven_s = 0.0
        self._is_over = False
        self._recall = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._reports = select.epoll()
        self._reports.register(self._recall, select.EPOLLIN)

    # --- the thread of the connections ---

    def add(self, descriptor: int) -> None:
        """Poll one more socket for reports, until it is closed."""
        self._reports.register(descriptor, select.EPOLLIN)

    def lend(self) -> None:
        """Lend the connections if puts wait one by one, and the connections have no other work."""
        if self._lone_puts < _LONE_PUTS or not self._connections.may_be_lent():
            return
        with suppress(BlockingIOError):
            os.eventfd_read(self._recall)
        self._lone_puts, self._driven_s, self.is_lent = 0, time.monotonic(), True
        if not self._connections.may_be_lent():  # a put that waits has not seen that
            self.take_back()

    def take_back(self) -> None:
        """End the loan; wake the putting thread, so that it does not miss a report."""
        self.is_lent = False
        os.eventfd_write(self._recall, 1)

    def serve_if_idle(self, serve: Callable[[], object]) -> None:
        """Call ``serve`` if no put uses the connections; take them back after a rest or a slow put.

        :param serve: serves the connections once, without waiting
        """
        rests_s = time.monotonic() - self._driven_s
        if rests_s >= _UNUSED_SECONDS or not self._connections.may_be_lent():
            self.take_back()
        elif rests_s < LENT_SECONDS:
            return
        elif self._drive_lock.acquire(blocking=False):
            # No put may drive meanwhile: it would miss the reports that are read here.
            try:
                serve()
            finally:
                self._drive_lock.release()
        elif rests_s >= _SLOW_SECONDS:
            self.take_back()

    def drop(self) -> None:
        """Close the descriptors; no thread may use the connections afterwards."""
        self._is_over, self.is_lent = True, False
        os.close(self._recall)
        self._reports.close()

    # --- the threads of puts ---

    def joined(self, *, is_alone: bool) -> None:
        """Note a put that waits for the thread of the connections.

        :param is_alone: whether it is the only one, and may call :meth:`drive` the next time
        """
        self._lone_puts = self._lone_puts + 1 if is_alone else 0
        if self.is_lent:
            self._wake()

    def send(self) -> bool:
        """Send in this thread if the connections are lent; return whether they are still lent."""
        if self.is_lent:
            self._use(self._connections.send)
        return self.is_lent

    def drive(self, copies: CopiedEnd, end_offset: int, deadline: float) -> bool:
        """Send, and read reports, until enough slaves have the log up to ``end_offset``.

        :param end_offset: physical offset in bytes
        :param deadline: seconds of ``time.monotonic``
        :returns: ``False`` on timeout, and if the put must wait for the thread of the connections

        Raises ``OSError``.
        """
        driving = self._drive_lock
        if self._holds_use_lock():  # a signal handler has interrupted their use
            return False
        try:
            if not driving.acquire(blocking=False):
                return False
            while copies.end < end_offset:
                left = deadline - time.monotonic()
                if left <= 0 or not self._drive(min(left, _NAP_SECONDS)):
                    return False
        finally:
            if self._holds_drive_lock():
                driving.release()
        return True

    def _drive(self, timeout_s: float) -> bool:
        """Send the unsent bytes, and wait for a report; return whether to continue."""
        connections = self._connections
        if connections.has_more():
            self._use(connections.send)
        if not self.is_lent:
            return False
        self._driven_s = time.monotonic()
        try:
            ready = self._reports.poll(timeout_s)
        except (OSError, ValueError):
            if self._is_over:
                return False
            raise
        if ready:
            self._use(lambda: connections.take_reports({each for each, _ in ready}))
        return True

    def _use(self, work: Callable[[], object]) -> None:
        """Call ``work`` in this thread, unless another thread uses the connections."""
        use_lock = self.use_lock
        if self._holds_use_lock():
            return
        try:
            if use_lock.acquire(blocking=False) and self.is_lent:
                work()
        finally:
            if self._holds_use_lock():
                use_lock.release()


def hold_for_slaves(
    files: FileSystem,
    path: Path,
    acked: Mapping[str, int],
    end: int,
    *,
    limit_bytes: int,
    segment_size_bytes: int,
) -> None:
    """Move the pins of a store that keep the log for its slaves.

    Each slave's address has a pin ``ha-ADDRESS``. The pin outlives the connection, so a slave that
    reconnects can continue where it was. No pin stays further behind the end of the log than the
    limit, so a slave that never reconnects cannot fill the disk. RocketMQ has no such pins: it
    deletes the segment, and then sends nothing more to the slave. A pin is written only if it moves
    to another segment, or if it must be renewed.

    :param path: the store directory
    :param acked: the largest physical offset that each connected slave reported, by address
    :param end: end offset of the bytes that slaves may have
    :param limit_bytes: largest distance of a pin from the end of the log; 0 means no pins

    Raises ``OSError``.
    """
    if not limit_bytes:
        return
    now_ms, least = time.time_ns() // 1_000_000, max(0, end - limit_bytes)
    found = {each.name: each for each in read_pins(files, path)}
    wanted = {_name(address): max(least, offset) for address, offset in acked.items()}
    for name, pin in found.items():
        if name.startswith(SLAVE_PINS) and name not in wanted and pin.position < least:
            wanted[name] = least
    for name, position in wanted.items():
        former = found.get(name)
        if (
            former is None
            or former.position // segment_size_bytes != position // segment_size_bytes
            or former.problem is not None
            or now_ms - former.time_ms >= _RENEW_MS
        ):
            write_pin(files, path, Pin(name, position, now_ms, "rocketmq-ha slave"))


def _name(address: str) -> str:
    return SLAVE_PINS + address.replace(":", "-").replace("%", "-")


def plain_address(text: str) -> IPv4Address | IPv6Address:
    """Parse an IP address, an IPv4-mapped IPv6 address as IPv4; raises ``ValueError``."""
    found = ip_address(text.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
