"""Stores whose queues and index another process builds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.tests.store.support import open_small
from lakelog import Store
from lakelog.services.remote import RemoteReput
from lakelog_doctor.check import check

AWAY: dict[str, Any] = {
    "services": {"dispatch": "process"},
    "attach": {"listen": False},
}


def open_away(path: Path, **more: Any) -> Store:
    """An owner, beside which a process dispatches."""
    return open_small(path, **{**AWAY, **more})


def remote(store: Store) -> RemoteReput:
    owned = store._owned
    assert owned is not None
    assert isinstance(owned.reput, RemoteReput)
    return owned.reput


def pid_of(store: Store, but: int = 0) -> int:
    """The process that dispatches, once it is another than ``but``."""
    eventually(lambda: remote(store).pid not in (None, but))
    return remote(store).pid or 0


def eventually(is_so: Callable[[], object], timeout_s: float = 60) -> None:
    """Wait until something is as it should be; fails if it does not come."""
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def damage(path: Path, **more: Any) -> list[str]:
    return [str(each) for each in check(path, plugins=more.pop("plugins", []), **more)]


def children() -> set[int]:
    """Processes of ours."""
    found = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(each) for each in found.read_text().split()} if found.exists() else set()
