"""Files mapped as shared memory: allocated in full, and identified across replacement."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeAlias

from lakelog.files.filesystem import FileSystem

Identity: TypeAlias = tuple[int, int]


def identity_of(path: Path, least_bytes: int) -> Identity | None:
    """Device and inode number of the file at ``path``; ``None`` if it is missing or too short."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_size >= least_bytes else None


def open_mapped(files: FileSystem, path: Path, length: int, *, writable: bool) -> memoryview | None:
    """Map the first ``length`` bytes of a file; ``None`` if it is shorter.

    Raises ``OSError``, and ``ValueError`` for a length that cannot be mapped.
    """
    with closing(files.open(path, write=writable)) as file:
        if file.size() < length:
            return None
        return memoryview(file.map(length, writable=writable))


def make_mapped(files: FileSystem, path: Path, length: int) -> memoryview:
    """Map the first ``length`` bytes of ``path`` read-write; create the file if missing.

    The bytes are allocated first: a write into a hole would kill the process on a full disk.

    Raises ``OSError``, and then leaves no new file.
    """
    is_new = not path.exists()
    file = files.open(path, write=True, create=True)
    try:
        file.allocate(length)
        return memoryview(file.map(length, writable=True))
    except BaseException:  # Ctrl-C too
        if is_new:
            with suppress(OSError):
                files.unlink(path)
        raise
    finally:
        file.close()
