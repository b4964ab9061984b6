"""Up to where a log is durable, asked again only when it may have changed.

For a store that is closed the answer takes a scan of its last segment: as long as landing some
hundred MiB. It holds for as long as no segment file is another one, longer, or written to.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import attrs

import lakelog
from lakelog.layout import COMMITLOG_DIR

_State: TypeAlias = frozenset[tuple[str, int, int, int]]


@attrs.define
class DurableEnd:
    """Remembers one log's."""

    _end: int = 0
    _state: _State | None = None

    def behind(self, store: lakelog.Store, start: int) -> int | None:
        """Where what is durable ends; ``None`` if nobody says.

        What is remembered is given only where it is behind ``start``: it is durable still, but it
        cannot say that nothing followed.
        """
        state = _state(store.path / COMMITLOG_DIR)
        if start < self._end and state == self._state:
            return self._end
        end = store.flushed_offset
        if not end and not store.is_flushed_known:
            return None
        self._end, self._state = end, state  # the state is older than the answer
        return end


def _state(folder: Path) -> _State:
    """Which files there are, and when they were written to."""
    found = set()
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            known = path.stat()
        except FileNotFoundError:  # deleted meanwhile, which changes the answer of the next look
            continue
        found.add((path.name, known.st_ino, known.st_size, known.st_mtime_ns))
    return frozenset(found)
