"""Puts a new folder in the place of an old one, at once; a crash leaves one of the two there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem


def swap_in(files: FileSystem, new: Path, target: Path, old: Path) -> None:
    """Put the folder ``new`` in the place of ``target``, which goes to ``old`` if it was there.

    ``new`` may be missing: then nothing takes the place. All three are on one file system; the
    names are durable on return. ``OSError`` leaves ``target`` as it was.
    """
    if not new.is_dir():
        _move(files, target, old)
    elif not target.exists():
        _move(files, new, target)
    elif files.exchange(new, target):
        _move(files, new, old)
    else:
        _in_two_steps(files, new, target, old)
    files.sync_dir(target.parent)


REBUILD_DIR: Final = "rebuild"
"""Where new folders grow, in ``lakelog/tmp``; what a crash leaves there the next owner removes."""


def remove_tree(files: FileSystem, path: Path) -> None:
    """Remove a folder with all that is in it; nothing happens if it is not there."""
    with suppress(FileNotFoundError):
        _empty(files, path)
        files.remove_dir(path)
        files.sync_dir(path.parent)


def _empty(files: FileSystem, path: Path) -> None:
    with os.scandir(path) as entries:
        found = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for each, is_dir in found:
        if is_dir:
            _empty(files, each)
            files.remove_dir(each)
        else:
            files.unlink(each)


def _move(files: FileSystem, source: Path, target: Path) -> None:
    if source.is_dir():
        files.rename(source, target)


def _in_two_steps(files: FileSystem, new: Path, target: Path, old: Path) -> None:
    """For file systems without an exchange: a crash in between leaves both of them in tmp."""
    files.rename(target, old)
    try:
        files.rename(new, target)
    except OSError:
        files.rename(old, target)
        raise
