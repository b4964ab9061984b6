"""Processes that are started, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import RealFileSystem
from lakelog.processes.ownership import is_served
from lakelog.processes.shared_page import PageView
from tests.processes.words import JOURNALS, STORE
from tests.support import forked

ERRORS: Final = "errors"
PATIENCE_SECONDS: Final = 60
_LAST_CHARACTERS: Final = 4000


@attrs.define
class Member:
    """One of the programs; it has a new name whenever it is started, if it is a producer.

    :ivar arguments: the program and its arguments, by the name it goes by this time
    """

    folder: Path
    name: str
    arguments: Callable[[str], Sequence[str]]
    renamed: bool = False
    process: forked.Forked | None = None
    started: int = 0

    @property
    def alias(self) -> str:
        return f"{self.name}.{self.started}" if self.renamed else self.name

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def journal(self) -> Path:
        return self.folder / JOURNALS / self.alias

    @property
    def errors(self) -> str:
        """What it wrote to standard error this time and before."""
        path = self.folder / ERRORS / self.name
        return path.read_text(errors="replace")[-_LAST_CHARACTERS:] if path.exists() else ""

    def start(self) -> None:
        self.started += 1
        program, *arguments = self.arguments(self.alias)
        self.process = forked.start(program, arguments, errors=self.folder / ERRORS / self.name)

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """By SIGTERM; it has to end well, and in time."""
        self.send(signal.SIGTERM)
        self.ended()

    def ended(self) -> None:
        """Wait until it has ended, and well."""
        assert self.process is not None
        try:
            code = self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGABRT)  # which has the threads' places written
            self.process.wait(PATIENCE_SECONDS)
            raise AssertionError(f"{self.alias} does not end: {self.errors}") from None
        assert code == 0, f"{self.alias} ended with {code}: {self.errors}"


def owner_of(folder: Path) -> int | None:
    """The process that has the services of the store, if one lives."""
    files, path = RealFileSystem(), folder / STORE
    page = PageView.open(files, path) if is_served(files, path) else None
    return None if page is None else page.owner[0]
