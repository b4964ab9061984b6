"""Makes files and folders durable: a power cut then finds them as they are."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Write what ``path`` holds to the disk: a file's bytes, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
