"""The file ``lakelog/replication.json``: a master's slaves, for ``lakelog replication status``.

Written by the process that sends, about once a second while something changes; never synced, and
replaced atomically. Times are in ms since 1970, offsets in bytes of the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import OWN_DIR

STATUS_FILE: Final = "replication.json"
_VERSION: Final = 1


@attrs.frozen(kw_only=True)
class SlaveStatus:
    """One connection.

    :ivar address: of the slave
    :ivar sent: end offset of the bytes that it was sent; -1 before it asked for any
    :ivar acked: end offset of the bytes that it reported; -1 before that
    :ivar learner: whether it counts for no put
    :ivar since_ms: when it connected
    """

    address: str
    sent: int
    acked: int
    learner: bool
    since_ms: int


@attrs.frozen(kw_only=True)
class MasterStatus:
    """What a master does.

    :ivar pid: the process that sends
    :ivar listening: host and port at which slaves connect
    :ivar time_ms: when this was written
    :ivar end: end offset of the bytes that slaves may have
    :ivar copied: end offset of the bytes that enough slaves have; 0 where no put waits
    :ivar in_sync_replicas: number of copies that a put waits for, the master's included
    :ivar refused: slaves that were last refused, with the reason, by address
    """

    pid: int
    listening: str
    time_ms: int
    end: int
    copied: int
    in_sync_replicas: int
    slaves: tuple[SlaveStatus, ...] = ()
    refused: Mapping[str, str] = attrs.field(factory=dict)

    def write(self, files: FileSystem, path: Path) -> None:
        """Replace the file of the store directory ``path``; raises ``OSError``."""
        target = path / OWN_DIR / STATUS_FILE
        temporary = target.with_name(f"{STATUS_FILE}.tmp")  # one process sends, and writes it
        file = files.open(temporary, write=True, create=True)
        try:
            file.truncate(0)
            content = {"version": _VERSION, **attrs.asdict(self)}
            file.write_at(0, json.dumps(content, indent=1).encode())
        finally:
            file.close()
        files.rename(temporary, target)


def read_status(path: Path) -> MasterStatus | None:
    """The last status of the store directory ``path``; ``None`` if no master has run.

    Raises :class:`~lakelog.errors.StoreError` if the file is damaged or cannot be read.
    """
    target = path / OWN_DIR / STATUS_FILE
    try:
        found: dict[str, Any] = json.loads(target.read_text())
        version, slaves = found.pop("version"), found.pop("slaves")
        if version != _VERSION:
            raise ValueError(f"its version is {version}, not {_VERSION}")
        return MasterStatus(slaves=tuple(SlaveStatus(**each) for each in slaves), **found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(
            f"the replication status cannot be read ({error}); the running master writes it again",
            path=target,
        ) from error
