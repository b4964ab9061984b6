"""Replaces a folder atomically; after a crash one of the two is in place."""

from __future__ import annotations

from pathlib import Path

from lakelog.files.filesystem import FileSystem


def swap_in(files: FileSystem, new: Path, target: Path, old: Path) -> None:
    """Replace the folder ``target`` by ``new``; a former ``target`` is moved to ``old``.

    ``new`` may be missing: ``target`` is then only moved. All three are on one file system; the
    names are durable on return. ``OSError`` leaves ``target`` unchanged.
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


def _move(files: FileSystem, source: Path, target: Path) -> None:
    if source.is_dir():
        files.rename(source, target)


def _in_two_steps(files: FileSystem, new: Path, target: Path, old: Path) -> None:
    """Replace without an atomic exchange: a crash in between leaves both folders in tmp."""
    files.rename(target, old)
    try:
        files.rename(new, target)
    except OSError:
        files.rename(old, target)
        raise
