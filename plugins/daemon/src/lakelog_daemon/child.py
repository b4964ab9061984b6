"""One running program of a service: its process, what it prints, and what it says of itself."""

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
"""In a service's environment: the store that it belongs to; by this its successor knows it."""
_NOT_INHERITED: Final = (notify.SOCKET, notify.WATCHDOG_US, notify.WATCHDOG_PID, "LISTEN_FDS")
_LAUNCH: Final = Path(__file__).with_name("launch.py")
_CHUNK: Final = 1 << 16


class Watching(Protocol):
    """Who tells when a descriptor can be read."""

    def watch(self, what: int | HasFileno, act: Callable[[], None]) -> None:
        """Call ``act`` then."""

    def unwatch(self, what: int | HasFileno) -> None:
        """No more."""


@attrs.frozen
class Heard:
    """Whom a child's life concerns.

    :ivar line: told of each line that it prints
    :ivar said: told of each line of its notifications
    :ivar ended: told of its exit status, negative for a signal, once it is gone
    """

    line: Callable[[str], None]
    said: Callable[[str], None]
    ended: Callable[[int], None]


class Child:
    """A program from its start to its end; everything is called from the loop.

    It is the leader of a session of its own: a Ctrl-C at the terminal is for ``serve``, and what it
    starts itself can be killed with it.
    """

    def __init__(
        self, spec: Spec, store: Path, hang_seconds: float, loop: Watching, heard: Heard
    ) -> None:
        """Start it; raises ``OSError`` where no process can be had."""
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
        """Of the process, and of its group."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program alone, or to all that it has started if it is SIGKILL."""
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
        if len(self._rest) >= _CHUNK:  # no line at all
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._heard.line(line.decode(errors="replace"))

    def _read(self) -> bytes | None:
        """What was printed; empty at its end, ``None`` if there is nothing now."""
        with suppress(BlockingIOError):
            return os.read(self._output, _CHUNK)
        return None

    def _ended(self) -> None:
        """Not reaped yet, so that nobody else has its id: the rest of its group goes as well."""
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
            if len(data) > 16 * _CHUNK:  # somebody who left the group goes on printing
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
    """Nobody could watch it."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _environ(store: Path, address: str, hang_seconds: float) -> dict[str, str]:
    """Ours, but for what our own manager told us alone."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    watchdog = {notify.WATCHDOG_US: str(round(hang_seconds * 1e6))} if hang_seconds else {}
    return kept | watchdog | {notify.SOCKET: address, SERVES: str(store)}
