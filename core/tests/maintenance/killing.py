"""Kills a cleaning before each of its changes to the disk, and checks the next open.

A program of :mod:`tests.support.forked`, with a folder as its argument. It prints a JSON
line for each: the change, the number of remaining segments, and the faults. Its
stores stay in the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lakelog
from core.tests.maintenance.support import Keeping, MaintenancePlugin, fill
from core.tests.store.faults import SeenFiles
from core.tests.store.support import open_small
from lakelog.format.layout import COMMITLOG_DIR
from lakelog.hooks import DeletionRate
from lakelog_doctor.check import check
from lakelog_testing.samples import copy_store

SETTINGS: dict[str, Any] = {"consume-queue": {"file_entries": 32}}
MESSAGES = 120


class Killing(SeenFiles):
    """Kills its process before the change with a given number, once it is armed."""

    armed = False

    def __init__(self, at: int = -1) -> None:
        super().__init__()
        self.at = at

    def see(self, call: str, path: Path) -> None:
        if self.armed and call in ("create", "rename", "unlink", "sync_dir"):
            if len(self.seen) == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            super().see(call, path)

    @property
    def changes(self) -> list[str]:
        """All changes so far."""
        return [f"{call} {path.parent.name}/{path.name}" for call, path in self.seen]


def clean(path: Path, files: Killing) -> None:
    """Clean a store; the call that is killed."""
    plugin = MaintenancePlugin(Keeping(keep=1, pace=DeletionRate(interval_ms=0)))
    store = plugin.open(path, files=files, **SETTINGS)
    files.armed = True
    store.delete_expired()
    files.armed = False
    store.close()


def killed_at(path: Path, at: int) -> bool:
    """Whether the process that cleans was killed before change ``at``."""
    child = os.fork()
    if not child:
        try:
            clean(path, Killing(at))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def wrong(path: Path) -> Iterator[str]:
    """The faults of a store that a kill left, in words."""
    with open_small(path, **SETTINGS) as store:
        report = store.recovery
        if report is None or report.damage or report.cut:
            yield f"recovery: {report}"
        numbers = [int(each.body[:6]) for each in store.scan()]
        if numbers != list(range(numbers[0], MESSAGES)):
            yield f"messages {numbers[:1]} to {numbers[-1:]}, {len(numbers)} of them"
        info = store.queues("t")[0]
        if (info.min_offset, info.max_offset) != (numbers[0], MESSAGES):
            yield f"the queue holds {info}, the log begins with {numbers[0]}"
        if store.put(lakelog.Message("t", b"%06d" % MESSAGES, queue_id=0)).queue_offset != MESSAGES:
            yield "the next message has another queue offset"
    yield from map(str, check(path, index=False, plugins=[], **SETTINGS))


def main() -> None:
    """Every change, one after the other."""
    folder = Path(sys.argv[1])
    with open_small(folder / "before", **SETTINGS) as store:
        fill(store, MESSAGES)
    at, is_killed = 0, True
    dry = Killing()
    copy_store(folder / "before", folder / "whole")
    clean(folder / "whole", dry)
    while is_killed:
        copy_store(folder / "before", folder / "killed")
        is_killed = killed_at(folder / "killed", at)
        row = {
            "killed": is_killed,
            "before": dry.changes[at] if at < len(dry.changes) else None,
            "segments": len(list((folder / "killed" / COMMITLOG_DIR).iterdir())),
            "wrong": list(wrong(folder / "killed")),
        }
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()  # or a fork writes it again
        shutil.rmtree(folder / "killed")
        at += 1
