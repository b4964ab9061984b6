"""Puts a new folder in the place of an old one, at once; a crash leaves one of the two there."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.files import FileSystem

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_CANNOT: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def swap_in(files: FileSystem, new: Path, target: Path, old: Path) -> None:
    """Put the folder ``new`` in the place of ``target``, which goes to ``old`` if it was there.

    ``new`` may be missing: then nothing takes the place. All three are on one file system; the
    names are durable on return. ``OSError`` leaves ``target`` as it was.
    """
    if not new.is_dir():
        _move(files, target, old)
    elif not target.exists():
        _move(files, new, target)
    elif _exchange(new, target):
        _move(files, new, old)
    else:
        _in_two_steps(files, new, target, old)
    files.sync_dir(target.parent)


REBUILD_DIR: Final = "rebuild"
"""Where new folders grow, in ``lakelog/tmp``; what a crash leaves there the next owner removes."""


def remove_tree(files: FileSystem, path: Path) -> None:
    """Remove a folder with all that is in it; nothing happens if it is not there."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
        files.sync_dir(path.parent)


def _move(files: FileSystem, source: Path, target: Path) -> None:
    if source.is_dir():
        files.rename(source, target)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places; whether the system can do that."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    done = call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done == 0:
        return True
    error = ctypes.get_errno()
    if error in _CANNOT:
        return False
    raise OSError(error, os.strerror(error), str(other))


def _in_two_steps(files: FileSystem, new: Path, target: Path, old: Path) -> None:
    """For file systems without an exchange: a crash in between leaves both of them in tmp."""
    files.rename(target, old)
    try:
        files.rename(new, target)
    except OSError:
        files.rename(old, target)
        raise
