"""Finds the durable end of a log, and caches it until it may have changed.

For a closed store the durable end takes a scan of its last segment, which costs as much as landing
some hundred MiB. The result stays durable as long as no segment file is replaced, extended or
written to. It stays the end of the log only as long as the store also stays closed: an open creates
``abort``, which changes the directory's modification time, even after ``abort`` is removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import attrs

import lakelog
from lakelog.format.layout import ABORT_FILE, COMMITLOG_DIR

_State: TypeAlias = frozenset[tuple[str, int, int, int]]
_SETTLED_NS: Final = 2_000_000_000
"""File times may be so coarse that a second change right after the first does not show."""


@attrs.define
class DurableEnd:
    """Caches the durable end of one log."""

    _end: int = 0
    _state: _State | None = None
    _closed: _State | None = None

    def behind(self, store: lakelog.Store, start: int) -> int | None:
        """The durable end; ``None`` if it is not known.

        For an open store, a cached end is returned only if it is behind ``start``: it is still
        durable, but newer records may have become durable since.
        """
        closed = _closed(store.path)
        state = _state(store.path / COMMITLOG_DIR)
        if state == self._state and (start < self._end or self._is_still(closed)):
            return self._end
        end = store.flushed_offset
        if not end and not store.is_flushed_known:
            return None
        self._end, self._state = end, state  # the states were taken before the answer
        self._closed = closed
        return end

    def is_still(self, path: Path) -> bool:
        """Whether the store is closed, and its files have not changed since the last call."""
        return self._is_still(_closed(path)) and _state(path / COMMITLOG_DIR) == self._state

    def _is_still(self, closed: _State | None) -> bool:
        return closed is not None and closed == self._closed


def _closed(folder: Path) -> _State | None:
    """The state of a closed store's folders; ``None`` for an open or just closed store.

    A store after a crash does not count as closed.
    """
    if (folder / ABORT_FILE).exists():
        return None
    found = frozenset(_stated((folder, folder / COMMITLOG_DIR)))
    before = time.time_ns() - _SETTLED_NS
    return found if all(changed < before for *_, changed in found) else None


def _state(folder: Path) -> _State:
    """Names, sizes and times of the log's files."""
    return frozenset(_stated(folder.iterdir() if folder.is_dir() else ()))


def _stated(paths: Iterable[Path]) -> Iterator[tuple[str, int, int, int]]:
    for path in paths:
        try:
            known = path.stat()
        except FileNotFoundError:  # deleted meanwhile; the next call returns another state
            continue
        yield path.name, known.st_ino, known.st_size, known.st_mtime_ns
