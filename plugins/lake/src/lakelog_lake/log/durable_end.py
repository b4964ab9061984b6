"""Up to where a log is durable, asked again only when it may have changed.

For a store that is closed the answer takes a scan of its last segment: as long as landing some
hundred MiB. What was durable is so for as long as no segment file is another one, longer, or
written to. That nothing followed holds for as long as, besides, the store stays closed: whoever
opens it makes ``abort``, which moves the time of the directory, also when it is gone again.
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
"""Times of files may be so coarse that a second change right after the first one moves none."""


@attrs.define
class DurableEnd:
    """Remembers one log's."""

    _end: int = 0
    _state: _State | None = None
    _closed: _State | None = None

    def behind(self, store: lakelog.Store, start: int) -> int | None:
        """Where what is durable ends; ``None`` if nobody says.

        What is remembered of a store that is open is given only where it is behind ``start``: it
        is durable still, but it cannot say that nothing followed.
        """
        closed = _closed(store.path)
        state = _state(store.path / COMMITLOG_DIR)
        if state == self._state and (start < self._end or self._is_still(closed)):
            return self._end
        end = store.flushed_offset
        if not end and not store.is_flushed_known:
            return None
        self._end, self._state = end, state  # the states are older than the answer
        self._closed = closed
        return end

    def is_still(self, path: Path) -> bool:
        """Whether a store is closed, and nothing has become of it since it was asked last."""
        return self._is_still(_closed(path)) and _state(path / COMMITLOG_DIR) == self._state

    def _is_still(self, closed: _State | None) -> bool:
        return closed is not None and closed == self._closed


def _closed(folder: Path) -> _State | None:
    """When a store that is closed was opened or closed last; ``None`` if it is open, or just was.

    After a crash it is not closed either.
    """
    if (folder / ABORT_FILE).exists():
        return None
    found = frozenset(_stated((folder, folder / COMMITLOG_DIR)))
    before = time.time_ns() - _SETTLED_NS
    return found if all(changed < before for *_, changed in found) else None


def _state(folder: Path) -> _State:
    """Which files there are, and when they were written to."""
    return frozenset(_stated(folder.iterdir() if folder.is_dir() else ()))


def _stated(paths: Iterable[Path]) -> Iterator[tuple[str, int, int, int]]:
    for path in paths:
        try:
            known = path.stat()
        except FileNotFoundError:  # deleted meanwhile, which changes the answer of the next look
            continue
        yield path.name, known.st_ino, known.st_size, known.st_mtime_ns
