"""The files of a running ``serve`` in ``lakelog/``: its process id, and what it says of itself.

``serve.pid`` has the process id and a line feed; it is there from when the store is owned until
just before it is let go. One that a crash left says nothing: the lock decides who owns a store, and
the next ``serve`` writes its own over it. ``serve.json`` is described in
:mod:`lakelog_daemon.status`. Both are replaced at once by a rename, and never synced: they speak
of a process, and need not outlive the machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.format.layout import OWN_DIR

PID_FILE: Final = "serve.pid"
STATUS_FILE: Final = "serve.json"


def pid_file(path: Path) -> Path:
    """Where the process id stands, of the store directory ``path``."""
    return path / OWN_DIR / PID_FILE


def status_file(path: Path) -> Path:
    """Where the status stands, of the store directory ``path``."""
    return path / OWN_DIR / STATUS_FILE


def write_pid(files: FileSystem, path: Path) -> None:
    """Say who serves; raises ``OSError``."""
    _replace(files, pid_file(path), b"%d\n" % os.getpid())


def remove_pid(files: FileSystem, path: Path) -> None:
    """Nobody serves any more; while the store is still owned, so that it is nobody else's."""
    with suppress(OSError):
        files.unlink(pid_file(path))


def write_status(files: FileSystem, path: Path, status: Mapping[str, Any]) -> None:
    """Say how things are; raises ``OSError``, and then leaves what stood there."""
    _replace(files, status_file(path), json.dumps(status, separators=(",", ":")).encode())


def read_status(files: FileSystem, path: Path) -> dict[str, Any] | None:
    """What was said last; ``None`` if nothing was, or if it cannot be read."""
    try:
        read = json.loads(read_file(files, status_file(path)) or b"")
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _replace(files: FileSystem, target: Path, content: bytes) -> None:
    temporary = target.with_name(f"{target.name}.tmp")
    file = files.open(temporary, write=True, create=True)
    try:
        file.truncate(0)
        file.write_at(0, content)
    finally:
        file.close()
    files.rename(temporary, target)
