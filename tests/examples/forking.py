"""Runs scripts and commands of lakelog in processes forked from one that has imported lakelog.

``python -m tests.examples.forking`` reads JSON lines ``[FOLDER, FILE OF THE OUTPUT, COMMAND]``, and
prints the exit code of each. Such a command is a file of Python or ``lakelog``, with arguments.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import typer.main

from lakelog.registry import Registry
from lakelog_cli.app import make_app

_ROOT: Final = Path(__file__).parents[2]
_IMPORTED: Final = (
    *("tests.support.warm", "lakelog.arrow", "rich.console", "rich.markup", "rich.traceback"),
    *("pyarrow.parquet", "pyiceberg.table", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"),
)


class Forking:
    """The process that others are forked from."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.examples.forking"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={**environment, "PYTHONPATH": str(_ROOT)},
            text=True,
        )

    def run(self, folder: Path, output: Path, command: Sequence[str]) -> int:
        """Run a command in a folder, with its output in a file; return its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), str(output), command]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _import() -> None:
    for name in _IMPORTED:
        with suppress(ImportError):
            import_module(name)
    app = make_app()
    Registry.load(None, {}).events.cli_commands(app)  # of all plugins that are installed
    typer.main.get_command(app)
    gc.collect()
    gc.freeze()


def _serve() -> None:
    sys.path.remove(str(_ROOT))
    del os.environ["PYTHONPATH"]
    for line in sys.stdin:
        folder, output, command = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(folder, output, command)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(folder: str, output: str, command: Sequence[str]) -> None:
    """Run a command in this process, and end it as Python would, except that no object is let go.

    That took longer than most commands: all modules are there.
    """
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (file, 1), (file, 2)):
        os.dup2(source, target)
    os.chdir(folder)
    sys.argv = list(command)
    code: object = None
    try:
        if command[0] == "lakelog":
            import_module("lakelog_cli.main").run()
        else:
            sys.path.insert(0, str(Path(command[0]).parent))
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001  # any error is printed, as Python does
        traceback.print_exc()
        code = 1
    if not isinstance(code, int | None):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # Python itself waits so for threads; it has no public name
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _import()
    _serve()
