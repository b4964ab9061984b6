"""One running program of a service: its process, its output, and its notifications."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Protocol

import attrs

from lakelog_daemon import notify
from lakelog_daemon.loop import HasFileno
from lakelog_daemon.notify import Ear
from lakelog_daemon.specs import Spec

SERVES: Final = "SERVICE_OF_LAKELOG"
"""Environment variable with the store of a service; the next ``serve`` finds leftovers by it."""
_NOT_INHERITED: Final = (notify.SOCKET, notify.WATCHDOG_US, notify.WATCHDOG_PID, "LISTEN_FDS")
_LAUNCH: Final = Path(__file__).with_name("launch.py")
_CHUNK: Final = 1 << 16


class Watching(Protocol):
    """Calls back when a descriptor becomes readable."""

    def watch(self, what: int | HasFileno, act: Callable[[], None]) -> None:
        """Call ``act`` whenever ``what`` is readable."""

    def unwatch(self, what: int | HasFileno) -> None:
        """Stop watching ``what``."""


@attrs.frozen
class Heard:
    """Callbacks for the events of a child.

    :ivar line: called with each line of output
    :ivar said: called with each line of its notifications
    :ivar ended: called with its exit status, negative for a signal, after it ended
    """

    line: Callable[[str], None]
    said: Callable[[str], None]
    ended: Callable[[int], None]


class Child:
    """A program from start to end; all methods are called from the loop.

    It leads its own session. So Ctrl-C at the terminal reaches ``serve`` alone, and the program can
    be killed together with the processes that it started.
    """

    def __init__(
        self, spec: Spec, store: Path, hang_seconds: float, loop: Watching, heard: Heard
    ) -> None:
        """Start the program; raises ``OSError`` if no process can be created."""
        self._loop = loop
        self._heard = heard
        self._rest = b""
        self._ear = Ear()
        with ExitStack() as undo:
            undo.callback(self._ear.close)
            self._process = _start(spec, _environ(store, self._ear.address, hang_seconds))
            undo.callback(_give_up, self._process)
            self._end = os.pidfd_open(self._process.pid)
            undo.pop_all()
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        loop.watch(self._end, self._ended)
        loop.watch(self._output, self._printed)
        loop.watch(self._ear, self._said)

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

    def _said(self) -> None:
        for line in self._ear.lines():
            self._heard.said(line)

    def _printed(self) -> None:
        data = self._read()
        if data is None:
            return
        if not data:
            self._loop.unwatch(self._output)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= _CHUNK:  # a line without end
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._heard.line(line.decode(errors="replace"))

    def _read(self) -> bytes | None:
        """Read available output; empty at its end, ``None`` if there is none yet."""
        with suppress(BlockingIOError):
            return os.read(self._output, _CHUNK)
        return None

    def _ended(self) -> None:
        """Kill the rest of its process group; its id is not reused, since it is not reaped yet."""
        self.send(signal.SIGKILL)
        self._said()
        for line in self._last_lines():
            self._heard.line(line)
        self._close()
        self._heard.ended(self._process.wait())

    def _last_lines(self) -> Iterator[str]:
        data = self._rest
        while more := self._read():
            data += more
            if len(data) > 16 * _CHUNK:  # a process outside the group may print without end
                break
        yield from data.decode(errors="replace").splitlines()

    def _close(self) -> None:
        for each in (self._end, self._output, self._ear):
            self._loop.unwatch(each)
        os.close(self._end)
        self._ear.close()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _start(spec: Spec, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    launcher = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid())]
    return subprocess.Popen(
        [*launcher, *spec.command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        start_new_session=True,
    )


def _give_up(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that cannot be watched."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _environ(store: Path, address: str, hang_seconds: float) -> dict[str, str]:
    """Our environment, without the variables that our own service manager set for us."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    watchdog = {notify.WATCHDOG_US: str(round(hang_seconds * 1e6))} if hang_seconds else {}
    return kept | watchdog | {notify.SOCKET: address, SERVES: str(store)}
