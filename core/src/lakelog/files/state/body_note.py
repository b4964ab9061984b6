"""``lakelog/append.json``: the append callbacks that have stored encoded bodies.

An open without one of them logs a warning, since it would return the encoded bodies.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.state.identity import parsed, write_own
from lakelog_format.fields.layout import APPEND_FILE, OWN_DIR

_VERSION: Final = 1
_LOG: Final = logging.getLogger("lakelog")


def note_callback(files: FileSystem, path: Path, name: str) -> None:
    """Note a callback; called by the owner before its first append."""
    known = _noted(files, path)
    if name not in known:
        content = {"version": _VERSION, "append": [*known, name]}
        write_own(files, path, APPEND_FILE, content)


def warn_of_others(files: FileSystem, path: Path, name: str) -> None:
    """Log a warning if callbacks other than ``name`` have stored encoded bodies."""
    others = [each for each in _noted(files, path) if each != name]
    if others:
        _LOG.warning(
            "%s: the append callback %s encoded bodies, but the store is open with %r, so they are "
            "returned as stored; set append = %r, best in %s",
            *(path, " and ".join(map(repr, others)), name, others[-1], "lakelog/lakelog.toml"),
        )


def _noted(files: FileSystem, path: Path) -> list[str]:
    match parsed(read_file(files, path / OWN_DIR / APPEND_FILE) or b"null"):
        case {"version": int(version), "append": [*names]} if version == _VERSION:
            return [each for each in names if isinstance(each, str)]
    return []
