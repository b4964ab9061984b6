"""Supervised services: started, watched, restarted, and stopped.

::

    WAITING --start--> RUNNING --it ends, or hangs and is killed--> WAITING ...
    any --stop--> STOPPING --it ends--> STOPPED

A service hangs if it is stopped by a signal (SIGSTOP) for ``serve.hang_timeout_ms``. It also hangs
if it sends ``WATCHDOG=1`` once and then nothing for as long. A service that never sends it is not
checked in that way. Nothing here blocks, so that a service never delays the store.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum, unique
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.settings.effective import ServeSettings
from lakelog_daemon.child import Child, ChildEvents
from lakelog_daemon.logs import fields, read_line
from lakelog_daemon.notify import READY, STATUS, WATCHDOG
from lakelog_daemon.plan import Spec
from lakelog_daemon.processes import look_at

_LOG: Final = logging.getLogger("lakelog.serve")
SPREAD: Final = 0.2
_MOST_DOUBLINGS: Final = 30
_LONGEST_STATUS: Final = 200
SETTLING_SECONDS: Final = 1.0
"""Shortest time, in seconds, before a restarted service is reported as ``ok``."""
_REAP_SECONDS: Final = 2.0
"""Longest wait for killed services to end, in seconds; one blocked by a disk takes longer."""


@unique
class ServiceState(StrEnum):
    """The state of a service."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


@attrs.define
class Backoff:
    """The restart delays of one service: doubled after each end, with random variation.

    The variation keeps services that ended together, for example on a full disk, from restarting
    together.

    :ivar chance: returns a random number from 0 to 1
    """

    settings: ServeSettings
    chance: Callable[[], float] = random.random
    _ends: int = 0

    def after(self, ran_seconds: float) -> float:
        """The delay in seconds before the restart of a service that ran for ``ran_seconds``."""
        if ran_seconds * 1000 >= self.settings.restart_settled_ms:
            self._ends = 0
        doubled = self.settings.restart_first_ms << min(self._ends, _MOST_DOUBLINGS)
        self._ends += 1
        pause_ms = min(doubled, self.settings.restart_longest_ms)
        return pause_ms / 1000 * (1 - SPREAD + 2 * SPREAD * self.chance())


@attrs.define
class Record:
    """The history of a service.

    :ivar restarts: number of restarts
    :ivar hangs: number of times that it was killed because it hung
    :ivar last_exit: its last end, in words
    :ivar is_ready: whether it sent ``READY=1`` since its start
    :ivar message: its last ``STATUS=``
    :ivar settled: time from which it is reported as ``ok``
    """

    restarts: int = 0
    hangs: int = 0
    last_exit: str | None = None
    is_ready: bool = False
    message: str | None = None
    started_ms: int | None = None
    started: float = 0.0
    settled: float = 0.0
    watchdog_time: float | None = None
    stopped_since: float | None = None


class Service:
    """A service; all methods are called from the loop."""

    def __init__(
        self,
        spec: Spec,
        store: Path,
        settings: ServeSettings,
        loop: asyncio.AbstractEventLoop,
        backoff: Backoff,
    ) -> None:
        self.spec = spec
        self.state = ServiceState.WAITING
        self.over = asyncio.Event()
        self.record = Record()
        self._store = store
        self._hang_seconds = settings.hang_timeout_ms / 1000
        self._loop = loop
        self._backoff = backoff
        self._child: Child | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process, if it runs."""
        return None if self._child is None else self._child.pid

    @property
    def is_over(self) -> bool:
        """Whether it has stopped permanently; ``over`` is set then."""
        return self.state is ServiceState.STOPPED

    def start(self) -> None:
        """Start its program; after a failure, retry later."""
        events = ChildEvents(self._printed, self._handle_notification, self._ended)
        try:
            child = Child(self.spec, self._store, self._hang_seconds, self._loop, events)
        except OSError as error:
            self._rest(f"cannot be started: {error.strerror or error}", 0.0)
            return
        self._child, self.state = child, ServiceState.RUNNING
        record = self.record
        record.started, record.started_ms = time.monotonic(), time.time_ns() // 1_000_000
        record.is_ready, record.message = False, None
        record.watchdog_time = record.stopped_since = None
        self._log(logging.INFO, "started", f"runs as process {child.pid}")

    def become(self, spec: Spec) -> None:
        """Run another program from now on; the present one gets SIGTERM."""
        self.spec = spec
        if self._child is not None and self.state is ServiceState.RUNNING:
            self._child.terminate()

    def look(self) -> None:
        """Kill it if it hangs; to be called periodically."""
        child, record, now = self._child, self.record, time.monotonic()
        if child is None or not self._hang_seconds or self.state is not ServiceState.RUNNING:
            return
        seen = look_at(child.pid)
        if seen is None or not seen.is_stopped:
            record.stopped_since = None
        elif record.stopped_since is None:
            record.stopped_since = now
        for since, what in (
            (record.stopped_since, "is stopped by a signal"),
            (record.watchdog_time, "has sent no WATCHDOG=1"),
        ):
            if since is not None and now - since >= self._hang_seconds:
                self._hangs(child, f"{what} for {now - since:.1f} s")
                return

    def stop(self) -> None:
        """Send SIGTERM, and never restart it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._child is None:
            self._finish()
        else:
            self.state = ServiceState.STOPPING
            self._child.terminate()

    def kill(self) -> None:
        """Kill it, together with its process group."""
        if self._child is not None:
            self._log(logging.WARNING, "killed", "did not stop in time, and is killed")
            self._child.send(signal.SIGKILL)

    def row(self) -> dict[str, Any]:
        """Its row in the status file, without resource usage."""
        record = self.record
        return {
            "name": self.spec.name,
            "kind": self.spec.kind,
            "pid": self.pid,
            "state": self.state.value,
            "health": self.health,
            "restarts": record.restarts,
            "hangs": record.hangs,
            "started_ms": record.started_ms,
            "says": record.message,
            "last_exit": record.last_exit,
        }

    @property
    def health(self) -> str:
        """``ok``, ``hanging``, ``stopped``, or ``restarting`` until it has run for a while."""
        if self.state is ServiceState.RUNNING:
            return self._running_health()
        return "restarting" if self.state is ServiceState.WAITING else "stopped"

    def _running_health(self) -> str:
        record = self.record
        if record.stopped_since is not None:
            return "hanging"
        is_settled = record.is_ready or time.monotonic() >= record.settled
        return "ok" if is_settled else "restarting"

    def _hangs(self, child: Child, why: str) -> None:
        self.record.hangs += 1
        self.record.watchdog_time = self.record.stopped_since = None
        self._log(logging.ERROR, "hangs", f"{why}; it is killed")
        child.send(signal.SIGKILL)

    def _printed(self, line: str) -> None:
        level, text = read_line(line)
        _LOG.log(level, "%s", text, extra=fields("output", service=self.spec.name, pid=self.pid))

    def _handle_notification(self, line: str) -> None:
        record = self.record
        if line == WATCHDOG:
            record.watchdog_time = time.monotonic()
        elif line == READY:
            record.is_ready = True
        elif line.startswith(STATUS):
            record.message = line.removeprefix(STATUS)[:_LONGEST_STATUS]

    def _ended(self, status: int) -> None:
        self._child = None
        how = _exit_text(status)
        self.record.last_exit = how
        if self.state is ServiceState.STOPPING:
            self._finish()
            self._log(logging.INFO, "stopped", f"has stopped: {how}")
        else:
            self._rest(how, time.monotonic() - self.record.started)

    def _finish(self) -> None:
        self.state = ServiceState.STOPPED
        self.over.set()

    def _rest(self, how: str, ran_seconds: float) -> None:
        """Wait for the restart delay, then start it again."""
        pause = self._backoff.after(ran_seconds)
        self.state, self.record.last_exit = ServiceState.WAITING, how
        self._log(logging.WARNING, "ended", f"{how}; restart in {pause:.1f} s")
        self.record.settled = time.monotonic() + pause + max(pause, SETTLING_SECONDS)
        self._timer = self._loop.call_later(pause, self._again)

    def _again(self) -> None:
        self.record.restarts += 1
        self.start()

    def _log(self, level: int, event: str, what: str) -> None:
        extra = fields(event, service=self.spec.name, pid=self.pid)
        _LOG.log(level, "%s", what, extra=extra)


class Supervisor:
    """All services of one store; all methods are called from the loop's thread."""

    def __init__(
        self,
        specs: Iterable[Spec],
        store: Path,
        settings: ServeSettings,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._made = partial(Service, store=store, settings=settings, loop=loop)
        self._settings = settings
        self.services = [self._service(each) for each in specs]

    def _service(self, spec: Spec) -> Service:
        return self._made(spec, backoff=Backoff(self._settings))

    def add(self, spec: Spec) -> Service:
        """Start one more service."""
        service = self._service(spec)
        self.services.append(service)
        service.start()
        return service

    def start(self) -> None:
        """Start all."""
        for each in self.services:
            each.start()

    def look(self) -> None:
        """Kill services that hang."""
        for each in self.services:
            each.look()

    async def stop(self, timeout_seconds: float, hurry: asyncio.Event) -> bool:
        """Send SIGTERM to all, and wait; returns whether none had to be killed.

        :param hurry: once it is set, services are killed without further waiting
        """
        for each in self.services:
            each.stop()
        over, hurried = (asyncio.ensure_future(each) for each in (self._over(), hurry.wait()))
        try:
            await asyncio.wait(
                (over, hurried), timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            late = [each for each in self.services if not each.is_over]
            for each in late:
                each.kill()
            await asyncio.wait((over,), timeout=_REAP_SECONDS)
        finally:
            over.cancel()
            hurried.cancel()
        return not late

    async def _over(self) -> None:
        for each in self.services:
            await each.over.wait()

    def rows(self) -> list[Mapping[str, Any]]:
        """The rows of the services in the status file."""
        return [each.row() for each in self.services]


def _exit_text(status: int) -> str:
    """An exit status in words.

    >>> _exit_text(3), _exit_text(-9)
    ('ended with code 3', 'ended by SIGKILL')
    """
    if status >= 0:
        return f"ended with code {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"
