"""``lakelog/index-seen.json``: how far the keys of a log are known, where none follow.

The entries of an index tell how far it has come only as far as there are keys; without this, a log
of records without keys would be read again whenever it is opened::

    {"version": 1, "end_offset": E, "last_offset": L, "record": {"offset": O, "size": S, "crc": C}}

All keys of records before ``E`` are in the files, which were synced before; the last record that
has one is at ``L`` (-1: none has). It counts only while the log holds the record that ended at
``E``, by the CRC-32 of its bytes, and the index an entry at or behind ``L``: so neither a log that
was cut and went on, nor an index that lost files, is believed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.files.filesystem import FileSystem, read_file, write_file
from lakelog.files.state.identity import parsed
from lakelog.files.state.pins import Fingerprint
from lakelog.format.layout import OWN_DIR

if TYPE_CHECKING:
    from lakelog_hash_index.logpeek import LogPeek

SEEN_FILE: Final = "index-seen.json"
_VERSION: Final = 1


@attrs.frozen
class Seen:
    """What the file says; see the module."""

    end_offset: int
    last_offset: int
    record: Fingerprint

    def holds(self, log: LogPeek, last_offset: int, end: int) -> bool:
        """Whether it is of this log, which ends at ``end``, and of the index that is there.

        :param last_offset: the offset of the last record that has entries, or -1
        """
        return self.end_offset <= end and self.last_offset <= last_offset and log.has(self.record)


def read_seen(files: FileSystem, path: Path) -> Seen | None:
    """What is known of the store directory ``path``; ``None`` if nothing, or nothing readable."""
    try:
        found = parsed(read_file(files, path / OWN_DIR / SEEN_FILE) or b"")
        if found["version"] != _VERSION:
            return None
        end, last = int(found["end_offset"]), int(found["last_offset"])
        return Seen(end, last, Fingerprint(**found["record"]))
    except (OSError, TypeError, KeyError, ValueError):
        return None


def write_seen(files: FileSystem, path: Path, seen: Seen) -> None:
    """Replace it durably; raises ``OSError``."""
    content = {"version": _VERSION, **attrs.asdict(seen)}
    write_file(files, path / OWN_DIR / SEEN_FILE, json.dumps(content).encode() + b"\n")


def forget_seen(files: FileSystem, path: Path) -> None:
    """Remove it, durably; raises ``OSError``."""
    if read_file(files, path / OWN_DIR / SEEN_FILE) is not None:
        files.unlink(path / OWN_DIR / SEEN_FILE)
        files.sync_dir(path / OWN_DIR)
