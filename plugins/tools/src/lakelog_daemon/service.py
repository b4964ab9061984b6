"""Supervised services: started, watched, restarted, and stopped; leftovers of a former ``serve``.

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
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from enum import StrEnum, unique
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.files.filesystem import FileSystem
from lakelog.settings.effective import ServeSettings
from lakelog_daemon import arguments, logs, notify
from lakelog_daemon.plan import Spec
from lakelog_daemon.processes import look_at
from lakelog_daemon.status import read_status

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
        self, spec: Spec, store: Path, settings: ServeSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.spec = spec
        self.store = store
        self.loop = loop
        self.hang_seconds = settings.hang_timeout_ms / 1000
        self.state = ServiceState.WAITING
        self.over = asyncio.Event()
        self.record = Record()
        self._backoff = Backoff(settings)
        self._child: Child | None = None
        self._is_replaced = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process, if it runs."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start its program; after a failure, retry later."""
        try:
            child = Child(self)
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
        """Run another program from now on; the present one gets SIGTERM.

        The end of the present one is no failure: its successor starts without a delay.
        """
        self.spec = spec
        if self._child is not None and self.state is ServiceState.RUNNING:
            self._is_replaced = True
            self._child.terminate()

    def look(self) -> None:
        """Kill it if it hangs; to be called periodically."""
        child, record, now = self._child, self.record, time.monotonic()
        if child is None or not self.hang_seconds or self.state is not ServiceState.RUNNING:
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
            if since is not None and now - since >= self.hang_seconds:
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

    # --- what its process reports ---

    def printed(self, line: str) -> None:
        """Log a line of its output."""
        level, text = logs.read_line(line)
        self._log(level, "output", text)

    def notified(self, line: str) -> None:
        """Note a line of its notifications."""
        record = self.record
        if line == notify.WATCHDOG:
            record.watchdog_time = time.monotonic()
        elif line == notify.READY:
            record.is_ready = True
        elif line.startswith(notify.STATUS):
            record.message = line.removeprefix(notify.STATUS)[:_LONGEST_STATUS]

    def ended(self, status: int) -> None:
        """Restart it later, unless it was stopped.

        :param status: the exit status, negative for a signal
        """
        replaced, self._is_replaced, self._child = self._is_replaced, False, None
        how = _exit_text(status)
        self.record.last_exit = how
        if self.state is ServiceState.STOPPING:
            self._finish()
            self._log(logging.INFO, "stopped", f"has stopped: {how}")
        elif replaced:
            self._log(logging.INFO, "replaced", f"{how}; starts with its new command")
            self.start()
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
        self._timer = self.loop.call_later(pause, self._again)

    def _again(self) -> None:
        self.record.restarts += 1
        self.start()

    def _log(self, level: int, event: str, what: str) -> None:
        extra = logs.fields(event, service=self.spec.name, pid=self.pid)
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
        self.services = [self._made(each) for each in specs]

    def add(self, spec: Spec) -> Service:
        """Start one more service."""
        service = self._made(spec)
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
            late = [each for each in self.services if not each.over.is_set()]
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


# --- processes ---

SERVES: Final = "SERVICE_OF_LAKELOG"
"""Environment variable with the store of a service; the next ``serve`` finds leftovers by it."""
_NOT_INHERITED: Final = (notify.SOCKET, notify.WATCHDOG_US, notify.WATCHDOG_PID, "LISTEN_FDS")
_LAUNCH: Final = Path(__file__).with_name("launch.py")
_CHUNK: Final = 1 << 16
GRACE_SECONDS: Final = 5.0
"""Time that a leftover process has to stop by itself, in seconds."""


class Child:
    """The program of a service from start to end; all methods are called from the loop.

    It leads its own session. So Ctrl-C at the terminal reaches ``serve`` alone, and the program can
    be killed together with the processes that it started.
    """

    def __init__(self, service: Service) -> None:
        """Start the program; raises ``OSError`` if no process can be created."""
        self._loop = loop = service.loop
        self._service = service
        self._rest = b""
        self._notifications = notify.NotifyReceiver()
        with ExitStack() as undo:
            undo.callback(self._notifications.close)
            self._process = _start(service, self._notifications.address)
            undo.callback(_kill_unwatched, self._process)
            self._end = os.pidfd_open(self._process.pid)
            undo.pop_all()
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        loop.add_reader(self._end, self._ended)
        loop.add_reader(self._output, self._printed)
        loop.add_reader(self._notifications, self._notified)

    @property
    def pid(self) -> int:
        """The id of the process, and of its process group."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program; SIGKILL goes to its whole process group."""
        with suppress(ProcessLookupError):
            if number is signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the program to end."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # a stopped process cannot handle SIGTERM

    def _notified(self) -> None:
        for line in self._notifications.lines():
            self._service.notified(line)

    def _printed(self) -> None:
        data = self._read()
        if data is None:
            return
        if not data:
            self._loop.remove_reader(self._output)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= _CHUNK:  # a line without end
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._service.printed(line.decode(errors="replace"))

    def _read(self) -> bytes | None:
        """Read available output; empty at its end, ``None`` if there is none yet."""
        with suppress(BlockingIOError):
            return os.read(self._output, _CHUNK)
        return None

    def _ended(self) -> None:
        """Kill the rest of its process group; its id is not reused, since it is not reaped yet."""
        self.send(signal.SIGKILL)
        self._notified()
        for line in self._last_lines():
            self._service.printed(line)
        self._close()
        self._service.ended(self._process.wait())

    def _last_lines(self) -> Iterator[str]:
        data = self._rest
        while more := self._read():
            data += more
            if len(data) > 16 * _CHUNK:  # a process outside the group may print without end
                break
        yield from data.decode(errors="replace").splitlines()

    def _close(self) -> None:
        for each in (self._end, self._output, self._notifications):
            self._loop.remove_reader(each)
        os.close(self._end)
        self._notifications.close()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _start(service: Service, address: str) -> subprocess.Popen[bytes]:
    """Start the program of a service, which sends its notifications to ``address``.

    Its environment is that of this process, without the variables of its own service manager.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    hang_us = str(round(service.hang_seconds * 1e6))
    watchdog = {notify.WATCHDOG_US: hang_us} if service.hang_seconds else {}
    launcher = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid())]
    with arguments.hidden(service.spec.stdin) as stdin:
        return subprocess.Popen(
            [*launcher, *service.spec.command],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=kept | watchdog | {notify.SOCKET: address, SERVES: str(service.store)},
            start_new_session=True,
        )


def _kill_unwatched(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that cannot be watched."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def end_leftovers(files: FileSystem, path: Path, loop: asyncio.AbstractEventLoop) -> None:
    """End services that a killed ``serve`` left; call it as owner, before starting services.

    Linux sent them SIGTERM when it ended. A service that hangs or is stopped may still exist. It is
    identified by its environment, so that an unrelated process with a reused id is not killed.
    """
    for pid in _named(files, path):
        if _serves(pid, path):
            what = "process %d was left by a former run and is stopped"
            _LOG.warning(what, pid, extra=logs.fields("leftover", pid=pid))
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)
            loop.call_later(GRACE_SECONDS, _kill_leftover, pid, path)


def _named(files: FileSystem, path: Path) -> Iterator[int]:
    """The process ids in the former status file; they may belong to other processes now."""
    processes = (read_status(files, path) or {}).get("processes")
    for row in processes if isinstance(processes, list) else ():
        pid = row.get("pid") if isinstance(row, dict) else None
        if type(pid) is int and pid > 1:
            yield pid


def _serves(pid: int, path: Path) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it ended, or belongs to another user
        return False
    return os.fsencode(f"{SERVES}={path}") in environ.split(b"\0")


def _kill_leftover(pid: int, path: Path) -> None:
    if _serves(pid, path):
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
