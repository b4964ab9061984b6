"""Runs the processes of contenders: Python modules, and the real store in its own JVM."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.bench.model import CannotRunError, Sample
from tests.oracle import java

READY: Final = "ready"
JAVA: Final = "DefaultMessageStore 5.3.3, default files, heap 512 MiB, 2 s of warm-up"
_WARM_UP_MS: Final = 2000
_START_SECONDS: Final = 60.0


def output(command: Sequence[str], *, errors: bool = False) -> str:
    """Run a command to its end; return what it printed, or raise CannotRunError."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stderr.strip() or f"died: {done.returncode}"
        raise CannotRunError(words.splitlines()[-1])
    return done.stderr if errors else done.stdout


def python(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of the bench."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def sample(command: Sequence[str]) -> Sample:
    """Run a command; return the figures that are the last line of its output."""
    figures: Sample = json.loads(output(command).splitlines()[-1])
    return figures


def real_store() -> java.Oracle:
    """Return the programs over the real store; raises CannotRunError without a JDK."""
    reason = java.missing()
    if reason:
        raise CannotRunError(reason)
    return java.build_oracle()


def puts_of_java(mode: str, seconds: float, directory: Path, **settings: int | str) -> Sample:
    """Measure puts into the real store; its start and its warm-up are not counted."""
    # Of each thread; with the default of 4 MiB, 256 threads do not fit into the heap's size.
    body = int(settings.setdefault("body", 1024))
    buffer_bytes = max(128 << 10, 2 * body * int(settings.get("n", 1)))
    row = real_store().bench(
        directory,
        mode,
        {"maxMessageSize": str(buffer_bytes)},
        ms=round(seconds * 1000),
        warm_ms=_WARM_UP_MS if seconds >= 1 else 10,
        **settings,
    )
    return {"rows_s": row["msgs_s"]} | {each: row[each] for each in ("mb_s", "p50_us", "p99_us")}


@contextmanager
def started(commands: Iterable[Sequence[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes that take steps; yields them when each has printed :data:`READY`."""
    with ExitStack() as stack:
        pipe = subprocess.PIPE
        processes = [
            stack.enter_context(subprocess.Popen(each, stdin=pipe, stdout=pipe, text=True))
            for each in commands
        ]
        try:
            for each in processes:
                line_of(each, READY)
            yield processes
        except BaseException:
            for each in processes:
                each.kill()
            raise


def line_of(process: subprocess.Popen[str], begin: str = "{") -> str:
    """Return the next line of its output that begins so: clients of Java print others too."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(begin):
            return line.rstrip("\n")
    raise CannotRunError("a process of the bench died")


def go(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Let processes take the next step."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def await_port(port: int, is_alive: Callable[[], bool]) -> None:
    """Wait until a process listens at ``port`` of this machine."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and is_alive():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise CannotRunError(f"nobody listens at port {port}")
