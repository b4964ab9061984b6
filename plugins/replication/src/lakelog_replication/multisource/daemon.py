"""Copies several masters, each by a program of its own, until a stop is requested.

The programs are supervised like services of a store. A program that ends, for any reason, is
restarted after growing pauses, and the others continue. Masters come from the settings, from name
servers, and from the file that stores the masters found by name servers. A master that is no longer
listed is kept.

The status of a folder of copies, in ``lakelog/serve.json`` of the folder.

The fields are those of :mod:`lakelog_daemon.status` that do not concern a single store, and::

    masters        {name: {"slaves": HOST:PORT, "broker": HOST:PORT or null, "listed": whether a
                   name server lists it now}}
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.errors import SettingsError, StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import OWN_DIR
from lakelog_daemon.child import end_leftovers
from lakelog_daemon.daemon import Deadline, Ending, every, log_failure, signals_in
from lakelog_daemon.file_lock import locked
from lakelog_daemon.logs import LogWriter, fields
from lakelog_daemon.notify import READY, STATUS, STOPPING, WATCHDOG, Notifier
from lakelog_daemon.plan import ServePlan
from lakelog_daemon.processes import Usage
from lakelog_daemon.service import Service, Supervisor
from lakelog_daemon.status import (
    FAILED,
    SERVING,
    STOPPED,
    VERSION,
    disks,
    now_ms,
    remove_pid,
    write_pid,
    write_status,
    writer,
)
from lakelog_daemon.status import STOPPING as NOW_STOPPING
from lakelog_replication.address import Address
from lakelog_replication.multisource.copy_program import copy_spec
from lakelog_replication.multisource.name_server import NameServerWatch
from lakelog_replication.multisource.source import SourceMaster, read_masters, write_masters

if TYPE_CHECKING:
    from lakelog_replication.settings import SlaveSettings


@attrs.define
class FolderStatus:
    """Builds statuses; CPU times cover the time since the last status.

    :ivar dropped: returns the number of dropped log lines
    """

    path: Path
    dropped: Callable[[], int]
    _started_ms: int = attrs.field(factory=now_ms, init=False)
    _usage: Usage = attrs.field(factory=Usage, init=False)

    def status(
        self,
        state: str,
        rows: Sequence[Mapping[str, Any]],
        masters: Iterable[SourceMaster],
        listed: Collection[str],
    ) -> dict[str, Any]:
        """The status, as described in this module.

        :param state: the daemon's state, as in :mod:`lakelog_daemon.status`
        :param rows: the supervisor's rows, one for each program
        :param masters: all masters that are copied
        :param listed: names of the masters that name servers list
        """
        problems = unhealthy(rows)
        return {
            "version": VERSION,
            "path": str(self.path),
            **writer(),
            "started_ms": self._started_ms,
            "heartbeat_ms": now_ms(),
            "state": state,
            "health": "degraded" if problems else "ok",
            "problems": problems,
            "masters": {
                each.name: {
                    "slaves": str(each.slaves),
                    "broker": None if each.broker is None else str(each.broker),
                    "listed": each.name in listed,
                }
                for each in masters
            },
            "disks": disks(self.path, self.path),
            "processes": self._usage.rows(os.getpid(), rows),
            "log_lines_dropped": self.dropped(),
        }


def unhealthy(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One text for each program that is restarting or hanging."""
    return [
        f"the copy of {row['name']} is {row['health']} ({row['last_exit']})"
        for row in rows
        if row["health"] in ("restarting", "hanging")
    ]


_LOG: Final = logging.getLogger("lakelog.serve")
_STOP: Final = (signal.SIGTERM, signal.SIGINT)
_LOCK_FILE: Final = "masters.lock"
_LOGS: Final = "commitlog"
_MORE_SECONDS: Final = 5.0
"""Time that a stop may take beyond the stop timeout of each copy."""


class MultiSourceDaemon:
    """Serves a folder of copies; a :class:`~lakelog_daemon.daemon.Runner`."""

    def __init__(
        self, plan: ServePlan, settings: SlaveSettings, log: LogWriter, late_code: int
    ) -> None:
        """Check the settings; open nothing yet.

        :param late_code: exit code of a stop that exceeds its timeout

        Raises :class:`~lakelog.errors.SettingsError`.
        """
        self._plan = plan
        self._settings = settings
        self._fixed = fixed_masters(settings)
        for each in self._fixed:
            copy_spec(plan, each)
        self._writer = log
        self._late_code = late_code
        self._files = RealFileSystem.of_store(plan.path, plan.opening.settings.core.group)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(log_failure)
        self._manager = Notifier.of(os.environ)
        beside = [each for each in plan.services if each.kind == "service"]
        self._supervisor = Supervisor(beside, plan.path, plan.settings, self._loop)
        self._status = FolderStatus(plan.path, lambda: log.dropped)
        self._masters: dict[str, SourceMaster] = {}
        self._copies: dict[str, Service] = {}
        self._listed: set[str] = set()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._state = SERVING
        self._notified_status = ""

    def run(self) -> Ending:
        """Copy until a stop is requested; ``FAILED`` if a copy was not running then.

        Raises :class:`~lakelog.errors.StoreError`, also as
        :class:`~lakelog.errors.StoreLocked`. Main thread only.
        """
        path = self._plan.path
        with closing(self._loop):
            if (path / _LOGS).exists():
                raise StoreError(
                    "a store is here; give a folder for those of the copies", path=path
                )
            try:
                self._files.make_dir(path / OWN_DIR)
            except OSError as error:
                what = f"the folder cannot be made: {error.strerror}"
                raise StoreError(what, path=path) from error
            with (
                locked(path, _LOCK_FILE, "another process copies masters to this folder"),
                signals_in(self._loop, (*_STOP, signal.SIGHUP), self._signalled),
            ):
                known = read_masters(self._files, path) if self._settings.name_servers else []
                return self._loop.run_until_complete(self._serve(known))

    async def _serve(self, known: Sequence[SourceMaster]) -> Ending:
        path, plan = self._plan.path, self._plan
        end_leftovers(self._files, path, self._loop)
        with suppress(OSError):  # a full disk of this folder; the copies may be on others
            write_pid(self._files, path)
        _LOG.info("copies masters to %s", path, extra=fields("serving", pid=os.getpid()))
        self._supervisor.start()
        self._take(known)
        self._take(self._fixed)
        watch = self._watch()
        watch.start()
        every(self._loop, plan.settings.status_interval_ms / 1000, self._tick)
        self._manager.send(READY)
        try:
            await self._stop.wait()
        finally:
            watch.stop()
            ending = await self._end()
        return ending

    def _watch(self) -> NameServerWatch:
        settings = self._settings
        return NameServerWatch(
            [Address.parse(each) for each in settings.name_servers],
            settings.cluster,
            settings.name_server_interval_ms / 1000,
            self._hand_over,
        )

    def _hand_over(self, found: list[SourceMaster]) -> None:
        """Pass the found masters to the event loop, from the thread that asks name servers."""
        with suppress(RuntimeError):  # the loop has just been closed
            self._loop.call_soon_threadsafe(self._found, found)

    # --- masters that come, move and go ---

    def _found(self, masters: Sequence[SourceMaster]) -> None:
        """Take the masters that name servers list now; called in the event loop."""
        if self._state != SERVING or not masters:
            return
        fixed = {each.name for each in self._fixed}
        listed = {each.name for each in masters}
        for name in sorted(self._listed - listed):
            _LOG.warning(
                "%s is listed no longer, or does not answer; its copy is kept, and retried", name
            )
        self._listed = listed
        if self._take([each for each in masters if each.name not in fixed]):
            self._remember()

    def _take(self, masters: Sequence[SourceMaster]) -> bool:
        """Start copies of new masters, and restart copies whose master's address changed.

        :returns: whether a master is new or changed

        Raises :class:`~lakelog.errors.SettingsError`.
        """
        changed = [each for each in masters if self._masters.get(each.name) != each]
        for each in changed:
            self._masters[each.name] = each
            spec = copy_spec(self._plan, each)
            if each.name in self._copies:
                _LOG.warning("%s is at %s now", each.name, each.places)
                self._copies[each.name].become(spec)
            else:
                _LOG.info("copies %s, at %s", each.name, each.places)
                self._copies[each.name] = self._supervisor.add(spec)
        return bool(changed)

    def _remember(self) -> None:
        fixed = {each.name for each in self._fixed}
        try:
            write_masters(
                self._files,
                self._plan.path,
                [each for name, each in self._masters.items() if name not in fixed],
            )
        except OSError as error:
            _LOG.error("the masters cannot be noted for the next start: %s", error)

    # --- status and signals ---

    def _tick(self) -> None:
        if self._state == STOPPED:  # asyncio may make a last call
            return
        self._supervisor.look()
        self._report()
        if self._manager.watchdog_seconds is not None:
            self._manager.send(WATCHDOG)

    def _report(self) -> None:
        rows = self._supervisor.rows()
        status = self._status.status(self._state, rows, self._masters.values(), self._listed)
        with suppress(OSError):  # a full disk, as for the PID file
            write_status(self._files, self._plan.path, status)
        status_text = "; ".join((f"{self._state}, {status['health']}", *status["problems"]))
        if status_text != self._notified_status:
            self._notified_status = status_text
            self._manager.send(STATUS + status_text)

    def _signalled(self, number: signal.Signals) -> None:
        if number is signal.SIGHUP:
            self._writer.reopen()
            return
        hurried = self._stop.is_set()
        (self._hurry if hurried else self._stop).set()
        _LOG.info("%s: %s", number.name, "copies are stopped at once" if hurried else "stops")

    async def _end(self) -> Ending:
        begun, seconds = time.monotonic(), self._plan.settings.stop_timeout_ms / 1000
        failed = unhealthy(self._supervisor.rows())
        with Deadline(seconds + _MORE_SECONDS, self._late_code, self._writer):
            self._state = NOW_STOPPING
            self._manager.send(STOPPING)
            await self._supervisor.stop(seconds, self._hurry)
            self._state = FAILED if failed else STOPPED
            self._report()
            self._state = STOPPED
            remove_pid(self._files, self._plan.path)
        for each in failed:
            _LOG.error("at the stop, %s", each)
        _LOG.info("stopped after %.1f s", time.monotonic() - begun, extra=fields("stopped"))
        return Ending.FAILED if failed else Ending.STOPPED


def fixed_masters(settings: SlaveSettings) -> list[SourceMaster]:
    """The masters listed in the settings; raises :class:`~lakelog.errors.SettingsError`."""
    key = "rocketmq-ha.masters"
    if settings.master:
        raise SettingsError("give either one master, or several", key=key)
    found: dict[str, Any] = {}
    for text in settings.masters:
        each = SourceMaster.parse(text)
        if each.name in found:
            raise SettingsError(f"two masters are called {each.name!r}", key=key)
        if settings.vouch == "flushed" and each.broker is None:
            what = f"vouch = 'flushed' asks the listenPort of {each.name}: add ',HOST:PORT'"
            raise SettingsError(what, key=key)
        found[each.name] = each
    return list(found.values())
