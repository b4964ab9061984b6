"""Keeps one Java running that runs the programs of the oracle, to avoid a start for each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from threading import Lock
from typing import Final

from tests.support.rows import Row

_MOST: Final = 50
"""Calls per process; copies that were dumped stay open in it, with their threads and maps."""


class Serving:
    """The program, started at the first call, and restarted after :data:`_MOST` calls.

    :param command: the program and its arguments
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._done = 0
        self._turn = Lock()

    def rows(self, program: str, arguments: Sequence[str]) -> list[Row]:
        """Return what a program prints; raises ``RuntimeError`` with an exception of it."""
        with self._turn:
            if self._done == _MOST or (self._process and self._process.poll() is not None):
                self._end()
            if self._process is None:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
                )
                self._done = 0
            self._done += 1
            return self._answer(self._process, [program, *arguments])

    @staticmethod
    def _answer(process: subprocess.Popen[str], words: Sequence[str]) -> list[Row]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join(words) + "\n")
        process.stdin.flush()
        rows = list[Row]()
        for line in process.stdout:
            row = json.loads(line)
            if row.get("kind") != "end":
                rows.append(row)
            elif row["thrown"]:
                raise RuntimeError(row["thrown"])
            else:
                return rows
        raise RuntimeError(f"the program ended with {process.wait()}")

    def close(self) -> None:
        """Stop the program, if it runs."""
        with self._turn:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None
