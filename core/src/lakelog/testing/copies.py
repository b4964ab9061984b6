"""Copies of store directories, of living and of killed ones too."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


def copy_store(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Copy a directory to a new name, but for sockets, which no copy could serve.

    A living or killed owner has one in ``lakelog/``. Raises what :func:`shutil.copytree` raises.
    """
    return Path(shutil.copytree(source, target, ignore=_sockets))


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if stat.S_ISSOCK(os.lstat(os.path.join(folder, name)).st_mode)}
