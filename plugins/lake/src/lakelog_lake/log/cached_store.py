"""The store that passes read, open from one to the next while its log can only grow.

That is so while somebody has it open, the same as before: who opens a store makes ``abort`` anew,
and before that nobody recovers, cuts or replaces a log. A store that nobody has open is opened for
each pass: by hand anything may have been done to it meanwhile. Nothing is asked of an open store
that builds queues in memory: those grow for as long as it stays open.
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
    """Opens it when it is asked for, if need be."""

    path: Path
    _store: lakelog.Store | None = None
    _marks: _Marks = ()

    def now(self) -> lakelog.Store:
        """The store as it is now, open for reading."""
        store = self.kept
        if store is None:
            self.close()
            marks = _marks(self.path)  # older than what is read
            store = self._store = lakelog.open(self.path, mode="read")
            self._marks = marks
        return store

    @property
    def kept(self) -> lakelog.Store | None:
        """The store, if it is open and need not be opened anew."""
        is_same = self._marks == _marks(self.path) and is_open_somewhere(self.path)
        return self._store if is_same else None

    def close(self) -> None:
        """Look at everything anew the next time."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _marks(path: Path) -> _Marks:
    """What is another one when another store is there, or another owner."""
    place = str(path)  # paths by hand: this is asked twice a second while nothing happens
    folders = (_stat(f"{place}/{name}", with_time=False) for name in _FOLDERS)
    return (*folders, *(_stat(f"{place}/{name}", with_time=True) for name in _FILES))


def _stat(path: str, *, with_time: bool) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    which = (found.st_dev, found.st_ino)
    return (*which, found.st_size, found.st_mtime_ns) if with_time else which
