"""A store that several processes have open: joining them, and taking the services.

The services are dispatching, retention, disk watching and the checkpoint. One process at a time
has them and holds a byte lock, which the system releases when the process ends. Another takes them
when they are released, or their process died.

Only locks decide whether a process is alone. The loser of a race joins the winner after the
winner's recovery.

A process without the services, or one that only reads, has the parts of :func:`reader_parts`: it
reads the files, and may append too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

import attrs

from lakelog import errors
from lakelog.dispatch import Lag, resume
from lakelog.files.checkpoint import CheckpointKeeper
from lakelog.hooks import Clock, Kind
from lakelog.log.appender import Appender
from lakelog.log.health import Health
from lakelog.log.log_reader import LogReader
from lakelog.log.sources import FileSource, ReaderBounds, read_damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.processes import shared_page
from lakelog.processes.membership import Membership, announce
from lakelog.processes.ownership import is_owned, locked
from lakelog.processes.positions import PageWaiter, Publisher, WakePage
from lakelog.recovery.clean_stop import CleanEnd
from lakelog.recovery.report import RecoveryReport
from lakelog.runtime.locks import Mutex
from lakelog.runtime.threads import started
from lakelog.settings.effective import ATTACH, MAINTENANCE, AttachSettings
from lakelog.store import owner
from lakelog.store.agreeing import agreed
from lakelog.store.open_log import LogMaker, OpenLog, lead
from lakelog.store.parts import NO_WRITING, Manager, OpenRequest, RefusingWriter, RoleParts
from lakelog.store.requests import HAND_OVER, Answering, Asking
from lakelog.store.strategies import (
    Strategies,
    add_services,
    make_archive,
    make_decoder,
    make_dispatchers,
    make_strategies,
    other_strategies,
)

if TYPE_CHECKING:
    from lakelog.maintenance.rounds import RemoteMaintenance
    from lakelog.store.parts import RoleState

LONGEST_SLEEP_S: Final = 0.5
"""The longest sleep, which bounds the delay after a lost wake-up."""

_FIRST_NAP_S: Final = 0.005
_LONGEST_NAP_S: Final = 0.1
_NO_OWNER: Final = -1


def wait_flushed(
    page: Callable[[], shared_page.PageView | None],
    page_waiter: PageWaiter,
    offset: int,
    timeout_s: float,
) -> bool:
    """Wait until the log is durable up to ``offset``; ``False`` on timeout.

    Also ``False``, at once, if no living owner publishes its positions. A waiter that was woken
    for another position sleeps briefly before it waits again.

    :param page: returns the page of a living owner, if there is one
    """
    end, nap = time.monotonic() + timeout_s, _FIRST_NAP_S
    while True:
        asked = page_waiter.ask()
        seen, begun = page(), time.monotonic()
        found, left = _NO_OWNER if seen is None else seen.flushed, end - begun
        if found >= offset or found == _NO_OWNER or left <= 0:
            return found >= offset
        seconds = min(left, LONGEST_SLEEP_S)
        slept = asked is not None and page_waiter.sleep(asked, seconds, LONGEST_SLEEP_S)
        if slept and time.monotonic() - begun >= seconds:
            nap = _FIRST_NAP_S
        else:  # woken early, or it cannot sleep
            time.sleep(min(nap, left))
            nap = min(2 * nap, _LONGEST_NAP_S)


def reader_parts(
    prepared: OpenRequest, appender: Appender | None = None, asking: Manager | None = None
) -> RoleParts:
    """Open the files for reading; a store extension dispatches records that queues and index lack.

    :param appender: appends in this process; without it, the role is ``read``
    :param asking: sends requests to the process with the services; given with ``appender``

    Raises :class:`~lakelog.errors.NotAStore`, and the errors of the strategies.
    """
    core = prepared.settings.core
    directory = StoreDirectory.of(prepared.files, prepared.path, core)
    if appender is None:
        directory.check_readable()
    prepared.registry.events.store_opening(prepared.path, read_only=appender is None)
    source = FileSource(
        prepared.files,
        directory.commitlog,
        core.segment_size_bytes,
        read_damage(prepared.files, prepared.path),
    )
    reader = _reader(prepared, source, directory.commitlog)
    registry, settings, context = (
        prepared.registry,
        prepared.settings,
        prepared.context(read_only=True),
    )
    dispatchers = (
        () if prepared.extension is None else make_dispatchers(registry, settings, context)
    )
    build = partial(registry.build, settings=settings, context=context)
    extension = prepared.extended(reader, dispatchers, appender=appender)

    def maintain() -> RemoteMaintenance:
        from lakelog.maintenance.planning import MaintainedLog
        from lakelog.maintenance.rounds import RemoteMaintenance

        log = MaintainedLog(
            directory=directory,
            reader=reader,
            starts=source.starts,
            segment_size_bytes=core.segment_size_bytes,
            cleaner=lambda: build(Kind.CLEANER, core.cleaner),
            disk_watcher=lambda: build(Kind.DISK_WATCHER, core.disk_watcher),
            events=prepared.registry.events,
            clock=prepared.clock,
            ask=asking,
        )
        section = prepared.settings.section(MAINTENANCE)
        return RemoteMaintenance(log, section, prepared.clock or Clock())

    refused = f"{prepared.path} is open for reading; open it with mode='write' to write"
    return RoleParts(
        prepared,
        "read" if appender is None else "attach",
        reader,
        appender or RefusingWriter(prepared.path, refused),
        Undispatched() if extension is None else extension.waits,
        maintain,
        extension,
        asking,
    )


class Undispatched:
    """The dispatch state without a store extension: queues and index are not used."""

    offset = 0
    lag = Lag(0, 0)
    failure = None

    def wait(self, offset: int, _timeout_s: float) -> bool:
        """Whether ``offset`` is the start of the log: nothing is ever dispatched."""
        return offset <= 0


def _reader(prepared: OpenRequest, source: FileSource, commitlog: Path) -> LogReader:
    context = prepared.context(read_only=True)
    other = other_strategies(prepared.registry, prepared.settings, prepared.files, prepared.path)
    if other is not None:
        _LOG.warning("%s", other)
    page_reader = shared_page.PageReader(prepared.files, prepared.path)
    reader = LogReader(
        source,
        ReaderBounds(source, page_reader.page, CleanEnd(prepared.files, prepared.path, commitlog)),
        lambda: is_owned(prepared.files, prepared.path),
        shared_page.ReaderDurableEnd(prepared.files, prepared.path, page_reader.page).end,
        partial(wait_flushed, page_reader.page, PageWaiter(prepared.files, prepared.path)),
        make_decoder(prepared.registry, prepared.settings, context),
    )
    archive = make_archive(prepared.registry, prepared.settings, context)
    if archive is not None:
        reader.add_archive(archive, prepared.settings.core.segment_size_bytes)
    return reader


def serving_parts(
    prepared: OpenRequest, opened: OpenLog, is_over: Callable[[], bool] = lambda: False
) -> RoleParts:
    """Build the parts of a process that takes the services of its open log.

    Raises :class:`~lakelog.errors.StoreClosed` once ``is_over`` returns true.
    """
    registry, settings = prepared.registry, prepared.settings
    context = prepared.context(read_only=False)
    archive = make_archive(registry, settings, context)
    owner.guard(context, opened.health)
    with ExitStack() as undo:
        strategies = add_services(opened.strategies, registry, settings, context)
        for each in strategies.dispatchers:
            undo.callback(each.dispatcher.close)
        lead(strategies, undo)
        owned = take_services(opened, strategies, context.checkpoint, undo, is_over)
        parts = owner.with_maintenance(prepared, owned, archive, owned.reput.close)
        undo.pop_all()
    return parts


def take_services(
    opened: OpenLog,
    strategies: Strategies,
    checkpoint: CheckpointKeeper,
    undo: ExitStack,
    is_over: Callable[[], bool],
) -> owner.OwnedStore:
    """Take over the services from a process that released them or died; the log is whole.

    Raises :class:`~lakelog.errors.StoreClosed` once ``is_over`` returns true.
    """
    directory, positions = opened.directory, opened.positions
    opened.segments.first_offset = positions.minimum
    publisher = Publisher(directory.files, directory.path, checkpoint, opened.page)
    publisher.go_on(positions)
    end = positions.readable_elsewhere
    start = resume(strategies.dispatchers, positions.minimum, end)
    why = "another process had the store open"
    report = RecoveryReport(True, end, why, positions.minimum, end, 0, dispatched_from=start)
    owned = owner.with_services(opened, strategies, publisher, checkpoint, report, start)
    undo.callback(owned.reput.close)
    owned.reput.complete(is_over=is_over)
    if is_over():  # the next process with the services dispatches the rest
        raise errors.StoreClosed("the store is closed")
    owner.begin_services(owned)
    return owned


_LOG: Final = logging.getLogger("lakelog")

_LOOK_S: Final = 0.005

_SOON_S: Final = 5.0
"""Seconds between two requests for the services: their owner syncs its queues meanwhile."""


@attrs.define(eq=False, repr=False)
class JoinedLog:
    """The log of a store that other processes may have open, and the state of its services.

    :ivar prepared: with the settings shared by all processes of the store
    :ivar log: the open log of this process
    :ivar store: the open store, whose parts change with the services
    """

    prepared: OpenRequest
    log: OpenLog
    store: RoleState | None = attrs.field(default=None, init=False)
    _thread: Thread | None = attrs.field(default=None, init=False)
    _serving: RoleParts | None = attrs.field(default=None, init=False)
    _is_closing: bool = attrs.field(default=False, init=False)
    _failed: str = attrs.field(default="", init=False)
    _lock: Mutex = attrs.field(factory=Mutex, init=False)

    @classmethod
    def join(cls, prepared: OpenRequest, lock: Membership) -> JoinedLog:
        """Open the log beside the other members.

        :param lock: a membership with a valid shared page; released on failure

        Raises :class:`~lakelog.errors.StoreLocked` for a staged writer,
        :class:`~lakelog.errors.StoreError` if the settings in the shared page are damaged, and the
        errors of :func:`~lakelog.store.agreeing.agreed`.
        """
        files, path, registry = prepared.files, prepared.path, prepared.registry
        with ExitStack() as undo:
            undo.callback(lock.leave)
            page = shared_page.SharedPage.join(files, path)
            if not page.settings:  # with its own settings it could write another log
                raise errors.StoreError(
                    "the settings in its shared page are damaged; close the store in all "
                    "processes, then open it again",
                    path=path,
                )
            settings = agreed(registry, prepared.settings, page.settings, path)
            prepared = attrs.evolve(prepared, settings=settings)
            context = prepared.context(read_only=False)
            strategies = make_strategies(registry, settings, context, services=False)
            if strategies.writer.traits.staged:
                why = owner.staging(settings.core.writer)
                advice = f", and {why}; choose another writer, or close the store there"
                raise locked(files, path, advice)
            maker = LogMaker(
                directory=StoreDirectory.of(files, path, settings.core),
                core=settings.core,
                strategies=strategies,
                health=Health(path, partial(registry.events.store_failed, path)),
                lock=lock,
                page=page,
                undo=undo,
            )
            opened = maker.make(maker.segments(maker.segment_maker(), alone=False))
            opened.health.add_listener(lambda cause: page.fail(str(cause)))
            wake = WakePage.open(files, path)
            if wake is not None:
                opened.positions.wake, opened.positions.asked = wake.wake, wake.asked
            if not page.words[shared_page.SEVERAL]:
                page.words[shared_page.SEVERAL] = 1
                announce(page)
            undo.callback(opened.watch.close)
            opened.watch.start()
            lock.let_in()
            made = cls(prepared, opened)
            prepared.begun.append(made)
            undo.pop_all()
        opened.watch.on_turn = made._turn
        return made

    def parts(self) -> RoleParts:
        """Build the parts for a store."""
        parts = reader_parts(self.prepared, self.log.appender, self._asking())
        parts.joined = self
        return parts

    def _asking(self) -> Asking:
        return Asking(self.prepared.files, self.log, self._attach.reconnect_timeout_ms)

    @property
    def _attach(self) -> AttachSettings:
        section: AttachSettings = self.prepared.settings.section(ATTACH)
        return section

    # --- services ---

    def serve(self) -> RoleParts:
        """Take the services and keep them; raises ``StoreLocked`` if another process keeps them.

        On an error the store is left.
        """
        try:
            self._take_services()
            return self._serving_parts()
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    def _serving_parts(self) -> RoleParts:
        """Build the parts with the services, which are released on an error."""
        try:
            return serving_parts(self.prepared, self.log, lambda: self._is_closing)
        except BaseException:  # Ctrl-C too
            self.log.lock.drop_services()
            raise

    def _take_services(self) -> None:
        """Request the services from their owner; repeat if a third process was faster."""
        lock, seconds = self.log.lock, self._attach.reconnect_timeout_ms / 1000
        end = time.monotonic() + seconds
        while not lock.take_services():
            if time.monotonic() >= end:
                raise locked(self.prepared.files, self.prepared.path)
            with suppress(errors.NoOwner):  # already free
                self._asking()(HAND_OVER)
            soon = time.monotonic() + _SOON_S
            while not lock.take_services() and time.monotonic() < min(soon, end):
                time.sleep(_LOOK_S)

    def _turn(self) -> None:
        """Take free services, in a new thread, since queues may have to be completed first."""
        if not self._attach.take_over or self.store is None or self._is_closing:
            return
        if self._is_changing or self.log.health.failure is not None:
            return
        if self.log.lock.take_services():
            try:
                self._begin(self._take_over)
            except errors.ThreadNotStarted:
                self.log.lock.drop_services()
                raise

    @property
    def _is_changing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self, change: Callable[[RoleState], None]) -> None:
        # Without the lock, a close could miss a thread that is being started: both would close the
        # store as its last owner.
        with self._lock:
            if self.store is not None and not self._is_closing:
                name = "lakelog-services"
                made = Thread(target=change, args=(self.store,), name=name, daemon=True)
                self._thread = started(made)

    def _take_over(self, store: RoleState) -> None:
        try:
            parts = self._serving_parts()
        except (errors.LakelogError, OSError) as error:
            # Each error is logged once: the take-over is retried soon.
            if not self._is_closing and self._failed != str(error):
                self._failed = str(error)
                _LOG.warning("%s: taking its services over failed: %s", self.prepared.path, error)
            return
        self.has(parts)
        store.adopt(parts)
        store.swap(parts)
        _LOG.info("%s: this process dispatches and cleans for the others now", self.prepared.path)

    def has(self, parts: RoleParts) -> None:
        """Run with the services until another process requests them."""
        self._serving = parts
        if isinstance(parts.answering, Answering):
            parts.answering.gives_up = self._begin_to_give_up

    def _begin_to_give_up(self) -> None:
        if not self._is_changing:
            self._begin(self._give_up)

    def _give_up(self, store: RoleState) -> None:
        parts = self._serving
        try:
            others = self.parts()
        except (errors.LakelogError, OSError) as error:
            # It keeps the services; a request may come again.
            _LOG.warning("%s: its services cannot be given up: %s", self.prepared.path, error)
            return
        if parts is None or not store.give_up(parts, others):
            return  # the store is being closed
        try:
            parts.give_up()
        except (errors.LakelogError, OSError) as error:
            _LOG.warning("%s: giving up its services failed: %s", self.prepared.path, error)
        finally:
            self._serving, self.log.watch.on_turn = None, self._turn
        _LOG.info("%s: another process dispatches and cleans now", self.prepared.path)

    # --- end ---

    def close(self) -> None:
        """Leave the store; the last process closes it as its owner does.

        If this process has the services, its other parts close the store.
        """
        with self._lock:
            self._is_closing = True
        if self._thread is not None:
            self._thread.join()
        if self._serving is not None or self.log.is_closed:
            return  # the parts before and after a hand-over are all closed with the store
        log = self.log
        if not log.part():
            log.leave()
            return
        try:
            log.lock.take_services()
            parts = serving_parts(self.prepared, log)
        except BaseException:
            log.leave()  # the next open recovers the store
            raise
        parts.close()


_RETRY_S: Final = 0.01


def shared_parts(request: OpenRequest) -> RoleParts:
    """Join the processes that have the store open, or take it over if there are none.

    While other processes open or close the store, this tries again. Raises
    :class:`~lakelog.errors.SettingsError`, :class:`~lakelog.errors.PluginError` and
    :class:`~lakelog.errors.StoreLocked` if it cannot join them.
    """
    end = time.monotonic() + _timeout_s(request)
    while True:
        last = time.monotonic() >= end
        found = _beside_others(request) if is_owned(request.files, request.path) else None
        if found is not None:
            return found
        try:  # no process has it open, or the last one has just left
            return _first(request)
        except errors.StoreLocked:  # another process was faster
            if last:
                raise
        time.sleep(_RETRY_S)


def kept_services(request: OpenRequest) -> RoleParts:
    """Take the services and keep them, after requesting them from their present owner.

    Raises :class:`~lakelog.errors.StoreLocked` if another process keeps them, otherwise as
    :func:`shared_parts`.
    """
    end = time.monotonic() + _timeout_s(request)
    while True:
        try:
            return owner.owner_parts(request, replica=None)
        except errors.StoreLocked:
            joined = _joined(request)
            if joined is not None:
                return joined.serve()
            if time.monotonic() >= end:
                raise
        time.sleep(_RETRY_S)  # the owner has closed it meanwhile


def _first(request: OpenRequest) -> RoleParts:
    """Take over the directory, and let other processes join."""
    parts = owner.owner_parts(request)
    if parts.owned is not None and not parts.owned.lock.is_alone:
        parts.joined = joined = JoinedLog(request, parts.owned)
        joined.has(parts)
    return parts


def _beside_others(request: OpenRequest) -> RoleParts | None:
    """Build parts to append beside other processes; ``None`` if there are none."""
    try:
        joined = _joined(request)
        if joined is None:
            return None
        try:
            return joined.parts()
        except BaseException:  # Ctrl-C too
            joined.close()
            raise
    except OSError as error:
        if error.errno not in NO_WRITING:
            raise
        raise errors.AttachRefused(
            "its files belong to another user; open it as that user, or give the store a group "
            "with the setting group",
            path=request.path,
        ) from error


def _joined(request: OpenRequest) -> JoinedLog | None:
    """Join the processes that have the store open; ``None`` if there are none."""
    lock = Membership.join(request.files, request.path, _timeout_s(request))
    if lock.is_alone:
        lock.leave()
        return None
    return JoinedLog.join(request, lock)


def _timeout_s(request: OpenRequest) -> float:
    timeout_ms: int = request.settings.section(ATTACH).reconnect_timeout_ms
    return timeout_ms / 1000
