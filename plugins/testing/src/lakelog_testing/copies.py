"""Copies of store directories, of living and of killed ones too."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from lakelog.format.layout import TMP_DIR


def copy_store(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Copy a directory to a new name, but for sockets, which no copy could serve.

    A living store makes segments in a folder of its own and renames them: one that has gone from
    there by the time it is copied is left out. Raises what :func:`shutil.copytree` raises.
    """
    return Path(shutil.copytree(source, target, ignore=_sockets, copy_function=_copy))


def _copy(source: str, target: str) -> None:
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        if Path(source).parent.name != TMP_DIR:
            raise


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if _is_socket(os.path.join(folder, name))}


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
