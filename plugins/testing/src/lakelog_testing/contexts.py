"""The :class:`~lakelog.interfaces.Context` that a test passes to a strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.interfaces import Context
from lakelog.settings.model import StoreSettings


def context_of(
    path: Path, *, read_only: bool = False, files: FileSystem | None = None, **core: Any
) -> Context:
    """A context for a store in ``path``, as an open of it would make.

    :param read_only: as for a store that is open for reading, and for followers
    :param files: the file system; by default that of the operating system
    :param core: settings of the core, such as ``segment_size_bytes=1 << 20``
    """
    seam = RealFileSystem() if files is None else files
    return Context(path, StoreSettings(**core), seam, read_only=read_only)
