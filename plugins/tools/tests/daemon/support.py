"""A ``lakelog serve`` in a separate process, as a user runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from tests.support.waiting import until

SECONDS: Final = 60.0
"""Time limit for expected events, in seconds."""
QUICK: Final = (
    "segment_size_bytes=64KiB",
    "preallocate=false",
    "serve.status_interval_ms=100",
    "serve.restart_first_ms=50",
    "serve.hang_timeout_ms=500",
)
PYTHON: Final = sys.executable


def run_until(
    loop: asyncio.AbstractEventLoop, is_done: Callable[[], Any], seconds: float = SECONDS
) -> bool:
    """Run a loop until something is true; ``False`` if it did not become so in time."""

    async def wait() -> bool:
        end = time.monotonic() + seconds
        while not is_done():
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(0.001)
        return True

    return loop.run_until_complete(wait())


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


@attrs.frozen
class Serving:
    """A running ``serve``."""

    process: subprocess.Popen[bytes]
    store: Path
    log_file: Path

    def status(self) -> dict[str, Any]:
        """Its present status; empty if it has written none."""
        try:
            said: dict[str, Any] = json.loads((self.store / "lakelog/serve.json").read_bytes())
        except FileNotFoundError:
            return {}
        return said if said["pid"] == self.process.pid else {}

    def row(self, name: str) -> dict[str, Any]:
        """The row of a process in its status; empty if there is none."""
        rows = [row for row in self.status().get("processes", ()) if row["name"] == name]
        return rows[0] if rows else {}

    def running(self, name: str, restarts: int = 0) -> int:
        """Wait until a service runs and has had ``restarts`` restarts; return its process id."""

        def pid() -> Any:
            row = self.row(name)
            return row.get("state") == "running" and row["restarts"] >= restarts and row["pid"]

        found: int = until(pid)
        return found

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def events(self) -> list[str]:
        """The events in its log, in order."""
        return [line["event"] for line in self.log() if "event" in line]

    def said(self, event: str) -> dict[str, Any]:
        """Wait for an event in its log; return its line."""

        def line() -> Any:
            return next((each for each in self.log() if each.get("event") == event), None)

        found: dict[str, Any] = until(line)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def serving(
    path: Path, *more: str, environ: Mapping[str, str] | None = None, settings: tuple[str, ...] = ()
) -> Iterator[Serving]:
    """Serve the store in ``path / "store"``; it is killed at the end, if it still runs."""
    log = path / "log"
    with subprocess.Popen(
        command(path, "--log-format", "json", "--log-file", str(log), *more, settings=settings),
        env=clean_environ() | dict(environ or {}),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # its process group is its own
    ) as process:
        try:
            yield started(Serving(process, path / "store", log))
        finally:
            process.kill()


def started(serve: Serving) -> Serving:
    """Wait until it serves."""
    until(lambda: serve.status().get("state") or serve.process.poll() is not None)
    return serve


def command(path: Path, *more: str, settings: tuple[str, ...] = ()) -> list[str]:
    """The command line of a quick ``serve``."""
    sets = [word for text in (*QUICK, *settings) for word in ("--set", text)]
    return [PYTHON, "-m", "lakelog", "serve", str(path / "store"), *sets, *more]


def clean_environ() -> dict[str, str]:
    """The environment of this process, without the variable of a service manager."""
    return {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}


def service(name: str, program: str) -> tuple[str, str]:
    """Options for a service that is a program in Python."""
    return "--service", f'{name}={PYTHON} -c "{program}"'


IDLE: Final = "import time; time.sleep(600)"
STUBBORN: Final = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); "
    "print('deaf', flush=True); time.sleep(600)"
)
