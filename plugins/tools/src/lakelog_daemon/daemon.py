"""Serves a store: owns it, runs its services, reports status, and stops in order.

SIGTERM or SIGINT starts a stop: services stop, the log is flushed, and the store is closed, which
leaves the directory as RocketMQ's clean stop does. A second signal kills the remaining services. If
the stop takes too long, the process exits, and the next owner recovers the store. A store that
failed (in a write or sync) is closed at once, because only reopening it helps.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import Enum, unique
from threading import Timer
from types import FrameType
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

from lakelog import Store
from lakelog.errors import StoreFailed, ThreadNotStarted
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.processes.shared_page import PageView
from lakelog.runtime.threads import started
from lakelog_daemon import notify, status
from lakelog_daemon.logs import LogWriter, fields, stop_log
from lakelog_daemon.plan import ServePlan
from lakelog_daemon.service import Supervisor, end_leftovers

_LOG: Final = logging.getLogger("lakelog.serve")
_STOP: Final = (signal.SIGTERM, signal.SIGINT)
FOR_SERVICES: Final = 0.6
"""Fraction of the stop timeout after which services are killed; the rest is for the store."""
STALE_MS: Final = 10_000
"""If the owner's heartbeat is older, its threads are stuck; the watchdog is then not notified."""
_LAST_WORDS_SECONDS: Final = 0.5
_FAILURE_PAUSE_SECONDS: Final = 0.05


@unique
class Ending(Enum):
    """How serving ended: in order, or because the store failed."""

    STOPPED = "stopped"
    FAILED = "failed"


class Runner(Protocol):
    """Serves a folder."""

    def run(self) -> Ending:
        """Serve until a stop is requested; main thread only."""


@runtime_checkable
class FolderSettings(Protocol):
    """Settings of a replicator by which a folder may hold several stores, in place of one."""

    def runner(self, plan: ServePlan, log: LogWriter, late_code: int) -> Runner | None:
        """Make the runner of the folder; ``None`` if the folder is one store."""


def runner_of(plan: ServePlan, log: LogWriter, late_code: int) -> Runner:
    """Make the runner of the folder of ``plan``.

    :param late_code: exit code of a stop that exceeds its timeout

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    settings = plan.opening.settings
    section = settings.sections.get(settings.core.replicator or "")
    made = section.runner(plan, log, late_code) if isinstance(section, FolderSettings) else None
    return made or Daemon(plan, log, late_code)


class Daemon:
    """Serves one store until a stop is requested."""

    def __init__(self, plan: ServePlan, log: LogWriter, late_code: int) -> None:
        """Prepare to serve; opens nothing yet.

        :param late_code: exit code of a stop that exceeds its timeout
        """
        self._plan = plan
        self._writer = log
        self._late_code = late_code
        self._files: FileSystem = RealFileSystem()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(log_failure)
        self._manager = notify.Notifier.of(os.environ)
        self._supervisor = Supervisor(plan.services, plan.path, plan.settings, self._loop)
        self._state = status.SERVING
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._signals = 0
        self._notified_status = ""
        self._has_room = True

    def run(self) -> Ending:
        """Serve; raises the errors of opening a store. Main thread only."""
        with closing(self._loop), ending_by(signal.SIGTERM):
            try:
                store = self._plan.open()
            except KeyboardInterrupt:
                _LOG.warning("stopped while the store was opened", extra=fields("stopped"))
                return Ending.STOPPED
            with signals_in(self._loop, (*_STOP, signal.SIGHUP), self._signalled):
                return self._loop.run_until_complete(self._serve(store))

    async def _serve(self, store: Store) -> Ending:
        self._files = RealFileSystem.of_store(store.path, store.settings.core.group)
        with ExitStack() as undo:
            undo.callback(store.close)
            page = PageView.open(self._files, store.path)
            assert page is not None, "an owner publishes its positions"
            services, log = self._supervisor.rows, self._plan.commitlog
            reporter = status.StatusReporter(
                self._files, store, log, page, services, lambda: self._writer.dropped
            )
            undo.pop_all()
        try:
            self._begin(reporter)
            await self._stop.wait()
        finally:
            ending = await self._end(store, reporter)
        return ending

    # --- while it serves ---

    def _begin(self, reporter: status.StatusReporter) -> None:
        path, settings = self._plan.path, self._plan.settings
        end_leftovers(self._files, path, self._loop)
        self._on_disk(lambda: status.write_pid(self._files, path))
        _LOG.info("serves %s", path, extra=fields("serving", pid=os.getpid(), store=str(path)))
        self._supervisor.start()
        every(self._loop, settings.status_interval_ms / 1000, lambda: self._tick(reporter))
        if self._manager.watchdog_seconds is not None:
            every(self._loop, self._manager.watchdog_seconds / 2, lambda: self._live(reporter))
        self._manager.send(notify.READY)

    def _tick(self, reporter: status.StatusReporter) -> None:
        if self._state == status.STOPPED:  # asyncio may make a last call after the store was closed
            return
        if reporter.has_failed:
            self._stop.set()
        self._supervisor.look()
        self._report(reporter)

    def _report(self, reporter: status.StatusReporter) -> None:
        report = reporter.status(self._state)
        self._on_disk(lambda: status.write_status(self._files, self._plan.path, report))
        text = "; ".join((f"{report['state']}, {report['health']}", *report["problems"]))
        if text != self._notified_status:
            self._notified_status = text
            self._manager.send(notify.STATUS + text)

    def _live(self, reporter: status.StatusReporter) -> None:
        """Notify the service manager's watchdog, unless the store's threads are stuck."""
        if self._state == status.STOPPED:
            return
        age_ms = time.time_ns() // 1_000_000 - status.heartbeat_ms(reporter.page)
        if age_ms < STALE_MS and not reporter.has_failed:
            self._manager.send(notify.WATCHDOG)

    def _signalled(self, number: signal.Signals) -> None:
        if number is signal.SIGHUP:
            self._writer.reopen()
            _LOG.info("goes on in a new log file", extra=fields("log_reopened"))
            return
        hurried = self._signals > 0
        self._signals += 1
        (self._hurry if hurried else self._stop).set()
        what = "services are stopped at once" if hurried else "stops"
        _LOG.info("%s: %s", number.name, what, extra=fields("hurried" if hurried else "stopping"))

    def _on_disk(self, act: Callable[[], None]) -> None:
        """Write a file of ``serve``; a failure is logged once, and does not stop the store."""
        try:
            act()
        except OSError as error:
            if self._has_room:
                _LOG.error("no status file: %s", error, extra=fields("no_status"))
            self._has_room = False
        else:
            self._has_room = True

    # --- when it stops ---

    async def _end(self, store: Store, reporter: status.StatusReporter) -> Ending:
        begun, seconds = time.monotonic(), self._plan.settings.stop_timeout_ms / 1000
        with deadline(seconds, self._late_code, self._writer):
            self._state = status.STOPPING
            self._manager.send(notify.STOPPING)
            with suppress(Exception):  # a failed status report must not prevent the stop
                self._report(reporter)
            await self._supervisor.stop(seconds * FOR_SERVICES, self._hurry)
            self._state = status.STOPPED
            with suppress(Exception):  # likewise
                self._report(reporter)
            ending = self._close(store)
        took = time.monotonic() - begun
        extra = fields(ending.value, seconds=round(took, 3))
        _LOG.info("%s after %.1f s", ending.value, took, extra=extra)
        return ending

    def _close(self, store: Store) -> Ending:
        status.remove_pid(self._files, self._plan.path)
        try:
            store.close()
        except StoreFailed as error:
            extra = fields("failed")
            _LOG.critical("%s", error, exc_info=error.__cause__, extra=extra)
            return Ending.FAILED
        return Ending.STOPPED


@contextmanager
def deadline(seconds: float, code: int, log: LogWriter) -> Iterator[None]:
    """Exit the process if the ``with`` block takes longer, wherever it hangs.

    :param code: exit code on timeout
    :param log: the log, whose pending lines are written before the exit
    """

    def end() -> None:
        what = "not stopped after %.1f s: ends as it is; the next owner recovers the store"
        _LOG.critical(what, seconds, extra=fields("late"))
        stop_log(log, _LAST_WORDS_SECONDS)
        os._exit(code)

    timer = Timer(seconds, end)
    timer.name, timer.daemon = "lakelog-deadline", True
    try:
        started(timer)
    except ThreadNotStarted as error:
        _LOG.warning("nothing bounds how long this stop takes: %s", error)
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def ending_by(number: signal.Signals) -> Iterator[None]:
    """Let a signal raise ``KeyboardInterrupt``, as Ctrl-C does; main thread only."""
    former = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        signal.signal(number, former)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def signals_in(
    loop: asyncio.AbstractEventLoop,
    numbers: Sequence[signal.Signals],
    act: Callable[[signal.Signals], None],
) -> Iterator[None]:
    """Call ``act`` from the loop for each of these signals; main thread only."""
    former = {each: signal.getsignal(each) for each in numbers}
    for each in numbers:
        loop.add_signal_handler(each, act, each)
    try:
        yield
    finally:
        for each, handler in former.items():
            loop.remove_signal_handler(each)
            signal.signal(each, handler)


def every(loop: asyncio.AbstractEventLoop, seconds: float, act: Callable[[], None]) -> None:
    """Call ``act`` now, and then at this interval; missed calls are not made up for."""
    due = loop.time() + seconds
    try:
        act()
    except Exception as error:  # noqa: BLE001  # the store must continue
        loop.call_exception_handler({"message": "a periodic call failed", "exception": error})
    loop.call_at(due, every, loop, seconds, act)


def log_failure(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log an exception of a callback, and pause: the failure may repeat at once.

    The loop continues afterwards, because a defect here must not stop the store.
    """
    _LOG.error("internal error: %s", context["message"], exc_info=context.get("exception"))
    time.sleep(_FAILURE_PAUSE_SECONDS)
