"""The files of a running ``serve`` in ``lakelog/``: its process id and its status.

``serve.pid`` holds the process id and a line feed. It exists from the start of ownership until just
before its end. One left by a crash has no meaning: the lock determines the owner of a store, and
the next ``serve`` overwrites it. ``serve.json`` is described in :mod:`lakelog_daemon.status`. Both
are replaced by a rename, and never synced: they describe a process, and need not survive a power
cut.
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
    """The file with the process id, for the store directory ``path``."""
    return path / OWN_DIR / PID_FILE


def status_file(path: Path) -> Path:
    """The status file, for the store directory ``path``."""
    return path / OWN_DIR / STATUS_FILE


def write_pid(files: FileSystem, path: Path) -> None:
    """Write the id of this process; raises ``OSError``."""
    _replace(files, pid_file(path), b"%d\n" % os.getpid())


def remove_pid(files: FileSystem, path: Path) -> None:
    """Remove the file; must be called while the store is owned, so that it is not another's."""
    with suppress(OSError):
        files.unlink(pid_file(path))


def write_status(files: FileSystem, path: Path, status: Mapping[str, Any]) -> None:
    """Replace the status; after an ``OSError`` the former one remains."""
    _replace(files, status_file(path), json.dumps(status, separators=(",", ":")).encode())


def read_status(files: FileSystem, path: Path) -> dict[str, Any] | None:
    """The last status; ``None`` if there is none, or it cannot be read."""
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
