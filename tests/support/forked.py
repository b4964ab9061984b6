"""Programs in processes that are forked from one that has imported lakelog: they start at once.

Such a process shares nothing with the test, nor with others of its kind: no thread, lock or open
file. A program is a module with a function ``main``, which finds its arguments in ``sys.argv``.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, Final, TextIO

import attrs

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.warm"])


@attrs.define
class Forked:
    """One that was started; what it has of :class:`subprocess.Popen` means the same.

    :ivar stdin: what it reads, where it has a pipe; :ivar stdout: what it writes
    """

    process: ForkServerProcess
    stdin: TextIO | None = None
    stdout: TextIO | None = None

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired(self.process.name, timeout or 0)
        return code

    def kill(self) -> None:
        self.process.kill()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipe, and wait until it has ended."""
        for each in (self.stdin, self.stdout):
            if each is not None:
                try:
                    each.close()
                except BrokenPipeError:  # it was killed, and did not read the last line
                    continue
        self.process.join()


def start(module: str, arguments: Sequence[str], *, errors: Path | None = None) -> Forked:
    """Start a program.

    :param errors: the file that its output is added to; without one, it has a pipe, and
        writes errors where the test does
    """
    if errors is not None:
        return Forked(_begun(module, arguments, errors, None))
    ours, theirs = FORKS.Pipe()
    with theirs:
        process = _begun(module, arguments, None, theirs)
    with ours:
        send_handle(ours, 2, process.pid)
        reading, writing = os.dup(ours.fileno()), os.dup(ours.fileno())
    return Forked(process, os.fdopen(writing, "w"), os.fdopen(reading))


def _begun(module: str, *given: Any) -> ForkServerProcess:
    process = FORKS.Process(
        target=_run, args=(module, dict(os.environ), *given), name=module, daemon=True
    )
    process.start()
    return process


def _run(
    module: str,
    environ: Mapping[str, str],
    arguments: Sequence[str],
    errors: Path | None,
    pipe: Connection | None,
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:0] = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    if errors is not None:
        file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for each in (1, 2):
            os.dup2(file, each)
        os.close(file)
        faulthandler.enable()
    if pipe is not None:
        told = recv_handle(pipe)
        os.dup2(told, 2)
        os.close(told)
        for each in (0, 1):
            os.dup2(pipe.fileno(), each)
        pipe.close()
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.argv = [module, *arguments]
    import_module(module).main()
