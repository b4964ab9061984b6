"""``lakelog/replica.json``: the log is a copy of a master's, and only the master may append to it.

``{"version": 1, "source": "HOST:PORT", "cut": OFFSET}``. ``source`` is the master's HA port.
``cut`` is mostly null. Otherwise the copy differs from its master from that offset on, and the next
open cuts it there, before anything is received. The checkpoint's ``confirm_offset`` is the end of
the bytes that the master cannot lose; for readers of a replica it is the durable end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.state.identity import parsed, shown, write_own
from lakelog_format.fields.layout import OWN_DIR
from lakelog_interfaces.errors import StoreError

REPLICA_FILE: Final = "replica.json"
_VERSION: Final = 1


@attrs.frozen
class ReplicaState:
    """The content of the file, apart from its version.

    :ivar source: the master, ``HOST:PORT``
    :ivar cut: offset at which the next open cuts the log, in bytes; ``None`` without a cut
    """

    source: str
    cut: int | None = None


def read_replica(files: FileSystem, path: Path) -> ReplicaState | None:
    """The state of the replica in the store directory ``path``; ``None`` if it is no replica.

    Raises :class:`~lakelog.errors.StoreError` for a damaged file.
    """
    file = path / OWN_DIR / REPLICA_FILE
    content = read_file(files, file)
    if content is None:
        return None
    match parsed(content):
        case {"version": int(version), "source": str(source), "cut": int() | None as cut} if (
            version == _VERSION
        ):
            return ReplicaState(source, cut)
    raise StoreError(
        f"it is damaged, or of another version: found {shown(content)}; if the store is a copy "
        'of a master, write {"version": 1, "source": "HOST:PORT", "cut": null} into it; if not, '
        "remove it",
        path=file,
    )


def write_replica(files: FileSystem, path: Path, state: ReplicaState) -> None:
    """Note durably that the store is a replica."""
    content = {"version": _VERSION, **attrs.asdict(state)}
    write_own(files, path, REPLICA_FILE, content)


def remove_replica(files: FileSystem, path: Path) -> None:
    """Turn the replica into an ordinary store, durably; no other process may have it open."""
    files.unlink(path / OWN_DIR / REPLICA_FILE)
    files.sync_dir(path / OWN_DIR)
