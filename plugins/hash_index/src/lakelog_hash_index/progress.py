"""``lakelog/index-seen.json``: the progress of the index through records without keys.

Entries show the progress only where there are keys; without this file, a log of records without
keys would be read again at every open::

    {"version": 1, "end_offset": E, "last_offset": L, "record": {"offset": O, "size": S, "crc": C}}

All keys of records before ``E`` are in the files, which were synced before; the last record with
a key is at ``L`` (-1: none). The file is valid only if the log has the record that ends at ``E``,
with the same CRC-32 of its bytes, and the index an entry at or behind ``L``. So it is ignored after
the log was cut and continued, or after index files were lost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.files.filesystem import FileSystem, read_file, write_file
from lakelog.files.state.identity import parsed
from lakelog.format.checksum import Fingerprint
from lakelog.format.layout import OWN_DIR

if TYPE_CHECKING:
    from lakelog_hash_index.logpeek import LogPeek

PROGRESS_FILE: Final = "index-seen.json"
_VERSION: Final = 1


@attrs.frozen
class IndexProgress:
    """The content of the file; see the module."""

    end_offset: int
    last_offset: int
    record: Fingerprint

    def holds(self, log: LogPeek, last_offset: int, end: int) -> bool:
        """Whether it is valid for this log, which ends at ``end``, and for the present index.

        :param last_offset: the offset of the last record with entries, or -1
        """
        return self.end_offset <= end and self.last_offset <= last_offset and log.has(self.record)


def read_progress(files: FileSystem, path: Path) -> IndexProgress | None:
    """The recorded progress of the store directory ``path``; ``None`` if missing or unreadable."""
    try:
        found = parsed(read_file(files, path / OWN_DIR / PROGRESS_FILE) or b"")
        if found["version"] != _VERSION:
            return None
        end, last = int(found["end_offset"]), int(found["last_offset"])
        return IndexProgress(end, last, Fingerprint(**found["record"]))
    except (OSError, TypeError, KeyError, ValueError):
        return None


def write_progress(files: FileSystem, path: Path, progress: IndexProgress) -> None:
    """Replace the file durably; raises ``OSError``."""
    content = {"version": _VERSION, **attrs.asdict(progress)}
    write_file(files, path / OWN_DIR / PROGRESS_FILE, json.dumps(content).encode() + b"\n")


def remove_progress(files: FileSystem, path: Path) -> None:
    """Remove the file durably; raises ``OSError``."""
    if read_file(files, path / OWN_DIR / PROGRESS_FILE) is not None:
        files.unlink(path / OWN_DIR / PROGRESS_FILE)
        files.sync_dir(path / OWN_DIR)
