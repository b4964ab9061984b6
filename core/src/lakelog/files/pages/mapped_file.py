"""Files that are mapped to be shared: made with room, and told from others of their name."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from lakelog.files.filesystem import FileSystem

Identity: TypeAlias = tuple[int, int]


def identity_of(path: Path, least_bytes: int) -> Identity | None:
    """What tells a file from another of its name; ``None`` for one that is gone or cut short."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_size >= least_bytes else None


def make_mapped(files: FileSystem, path: Path, length: int) -> memoryview:
    """The first ``length`` bytes of ``path``, made if it is not there, to be read and written.

    They are allocated first: a store into a hole would kill the process on a full disk.

    Raises ``OSError``, and then leaves no new file behind.
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
