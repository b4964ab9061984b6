"""Programs that copy several masters."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog_daemon.status import read_status
from plugins.replication.tests.replica.copies import SEGMENT, until
from tests.support import forked

PATIENCE_SECONDS: Final = 120.0
QUICK: Final = {
    "segment_size_bytes": SEGMENT,
    "rocketmq-ha.vouch": "received",
    "rocketmq-ha.reconnect_interval_ms": 50,
    "rocketmq-ha.name_server_interval_ms": 100,
    "serve.restart_first_ms": 100,
    "serve.restart_longest_ms": 400,
    "serve.status_interval_ms": 100,
}


@attrs.define
class Copying:
    """A program that copies masters to stores below ``folder``."""

    folder: Path
    process: forked.Forked
    out: Path

    def said(self) -> str:
        """Its log."""
        return self.out.read_text(errors="replace")

    def row(self, name: str) -> dict[str, Any]:
        """The status of the copy ``name``; empty until there is one."""
        found = read_status(RealFileSystem(), self.folder) or {}
        rows: list[dict[str, Any]] = found.get("processes", [])
        return next((each for each in rows if each["name"] == name), {})

    def stop(self) -> int:
        """Stop it; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def program(folder: Path, *words: str, **more: object) -> Iterator[Copying]:
    """Run ``lakelog COMMAND FOLDER ...``, and kill it at the end if it still runs.

    :param more: further settings; ``None`` leaves one to its default
    """
    command, *rest = words
    given = {key: value for key, value in {**QUICK, **more}.items() if value is not None}
    settings = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    out = folder.parent / "several.out"
    words = (command, str(folder), *settings, *rest)
    out.touch()
    with forked.start("tests.support.program", words, errors=out) as process:
        try:
            yield Copying(folder, process, out)
        finally:
            process.kill()


def end_of(store: Path) -> int:
    """The durable end of a copy that another process fills; -1 before it exists."""
    try:
        with lakelog.open(store, mode="read") as reader:
            return reader.flushed_offset
    except lakelog.LakelogError:
        return -1


def reaches(store: Path, end: int) -> None:
    """Wait until a copy is durable up to ``end``."""
    until(lambda: end_of(store) >= end, PATIENCE_SECONDS, pause_s=0.05)  # each opens a store
