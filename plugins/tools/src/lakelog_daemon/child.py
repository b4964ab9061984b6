"""The process of a service, with its output and notifications; leftovers of a former ``serve``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import FileSystem
from lakelog_daemon import notify
from lakelog_daemon.arguments import hidden
from lakelog_daemon.logs import fields
from lakelog_daemon.notify import NotifyReceiver
from lakelog_daemon.plan import Spec
from lakelog_daemon.status import read_status

_LOG: Final = logging.getLogger("lakelog.serve")
SERVES: Final = "SERVICE_OF_LAKELOG"
"""Environment variable with the store of a service; the next ``serve`` finds leftovers by it."""
_NOT_INHERITED: Final = (notify.SOCKET, notify.WATCHDOG_US, notify.WATCHDOG_PID, "LISTEN_FDS")
_LAUNCH: Final = Path(__file__).with_name("launch.py")
_CHUNK: Final = 1 << 16
GRACE_SECONDS: Final = 5.0
"""Time that a leftover process has to stop by itself, in seconds."""


@attrs.frozen
class ChildEvents:
    """Callbacks for the events of a child.

    :ivar line: called with each line of output
    :ivar notified: called with each line of its notifications
    :ivar ended: called with its exit status, negative for a signal, after it ended
    """

    line: Callable[[str], None]
    notified: Callable[[str], None]
    ended: Callable[[int], None]


class Child:
    """A program from start to end; all methods are called from the loop.

    It leads its own session. So Ctrl-C at the terminal reaches ``serve`` alone, and the program can
    be killed together with the processes that it started.
    """

    def __init__(
        self,
        spec: Spec,
        store: Path,
        hang_seconds: float,
        loop: asyncio.AbstractEventLoop,
        events: ChildEvents,
    ) -> None:
        """Start the program; raises ``OSError`` if no process can be created."""
        self._loop = loop
        self._events = events
        self._rest = b""
        self._notifications = NotifyReceiver()
        with ExitStack() as undo:
            undo.callback(self._notifications.close)
            self._process = _start(spec, _environ(store, self._notifications.address, hang_seconds))
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
            self._events.notified(line)

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
            self._events.line(line.decode(errors="replace"))

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
            self._events.line(line)
        self._close()
        self._events.ended(self._process.wait())

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


def _start(spec: Spec, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    launcher = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid())]
    with hidden(spec.stdin) as stdin:
        return subprocess.Popen(
            [*launcher, *spec.command],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,
        )


def _kill_unwatched(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that cannot be watched."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _environ(store: Path, address: str, hang_seconds: float) -> dict[str, str]:
    """The environment of this process, without the variables of its own service manager."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    watchdog = {notify.WATCHDOG_US: str(round(hang_seconds * 1e6))} if hang_seconds else {}
    return kept | watchdog | {notify.SOCKET: address, SERVES: str(store)}


def end_leftovers(files: FileSystem, path: Path, loop: asyncio.AbstractEventLoop) -> None:
    """End services that a killed ``serve`` left; call it as owner, before starting services.

    Linux sent them SIGTERM when it ended. A service that hangs or is stopped may still exist. It is
    identified by its environment, so that an unrelated process with a reused id is not killed.
    """
    for pid in _named(files, path):
        if _serves(pid, path):
            _LOG.warning(
                "process %d was left by a former run and is stopped",
                pid,
                extra=fields("leftover", pid=pid),
            )
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
