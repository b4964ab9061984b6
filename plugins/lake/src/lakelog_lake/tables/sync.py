"""Makes files and folders durable: a power cut then finds them as they are.

An object store has what it has answered for.
"""

from __future__ import annotations

import os

from lakelog_lake.tables.remote import Folder, Remote


def sync(path: Folder) -> None:
    """Write what ``path`` holds to the disk: a file's bytes, or the names in a folder."""
    if isinstance(path, Remote):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
