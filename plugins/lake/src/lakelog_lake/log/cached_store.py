"""Keeps the store open between passes as long as its log can only grow.

A log only grows while one process has the store open. An unchanged ``abort`` file shows this: each
open for writing creates the file anew, and a log is recovered, cut or replaced only before that. A
store that no process has open is opened again for each pass, as users may have changed its files.
Callers may read only the log through the kept reader: queues built in memory would grow without
bound.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeAlias

import attrs

import lakelog
from lakelog.format.layout import ABORT_FILE, COMMITLOG_DIR, OWN_DIR, SETTINGS_FILE, STORE_FILE
from lakelog_lake.log.ends import is_open_somewhere

_Marks: TypeAlias = tuple[tuple[int, ...] | None, ...]
_FOLDERS: Final = (".", COMMITLOG_DIR, OWN_DIR)
_FILES: Final = (
    ABORT_FILE,
    f"{OWN_DIR}/{STORE_FILE}",
    f"{OWN_DIR}/{SETTINGS_FILE}",
    f"{OWN_DIR}/damage.json",
)


@attrs.define
class CachedStore:
    """Opens the store on demand."""

    path: Path
    _store: lakelog.Store | None = None
    _marks: _Marks = ()

    def now(self) -> lakelog.Store:
        """The present store, open for reading."""
        store = self.kept
        if store is None:
            self.close()
            marks = _marks(self.path)  # taken before the store is opened
            store = self._store = lakelog.open(self.path, mode="read")
            self._marks = marks
        return store

    @property
    def kept(self) -> lakelog.Store | None:
        """The open store, unless it has to be opened again."""
        is_same = self._marks == _marks(self.path) and is_open_somewhere(self.path)
        return self._store if is_same else None

    def close(self) -> None:
        """Close the store, so that the next use opens it again."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _marks(path: Path) -> _Marks:
    """File attributes that change if the store is replaced or gets another owner."""
    place = str(path)  # plain strings: this runs twice a second when idle
    folders = (_stat(f"{place}/{name}", with_time=False) for name in _FOLDERS)
    return (*folders, *(_stat(f"{place}/{name}", with_time=True) for name in _FILES))


def _stat(path: str, *, with_time: bool) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    which = (found.st_dev, found.st_ino)
    return (*which, found.st_size, found.st_mtime_ns) if with_time else which
