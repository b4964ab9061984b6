"""The file ``lakelog/replication.json``: a master's slaves, or the state of a replica's master.

The process that sends or receives writes it, about once a second while something changes. It is
replaced atomically, and never synced. Times are in ms since 1970; offsets are physical offsets in
bytes. ``lakelog top``, ``stats`` and ``replication status`` read it (``lakelog_cli.statelines``).
``role`` is ``master``, with the fields of :class:`MasterStatus`, or ``slave``, with the fields of
:class:`ReplicaStatus`.

The objects that the commands of replication print with ``--json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypedDict

import attrs

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import OWN_DIR

STATUS_FILE: Final = "replication.json"
_VERSION: Final = 1


@attrs.frozen(kw_only=True)
class SlaveStatus:
    """One connection of a slave.

    :ivar address: the slave's IP address
    :ivar sent: end offset of the sent bytes; -1 before the slave's first report
    :ivar acked: largest offset that the slave reported; -1 before its first report
    :ivar learner: whether no put waits for the slave
    :ivar since_ms: time of the connect
    """

    address: str
    sent: int
    acked: int
    learner: bool
    since_ms: int


@attrs.frozen(kw_only=True)
class MasterStatus:
    """The status of a master.

    :ivar pid: the process that sends
    :ivar listening: ``HOST:PORT`` for slaves; ``*`` is every address
    :ivar time_ms: time of the write
    :ivar end: end offset of the bytes that slaves may have
    :ivar copied: end offset of the bytes that enough slaves have; 0 where no put waits
    :ivar in_sync_replicas: number of copies that a put waits for, the master's included
    :ivar refused: reason of the last refusal, by the slave's address; ``port`` and ``pins`` have
        failures of the master itself
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
        _write(files, path, {"role": "master", **attrs.asdict(self)})


@attrs.frozen(kw_only=True)
class ReplicaStatus:
    """The status of a replica.

    :ivar pid: the process that receives
    :ivar source: the master, ``HOST:PORT``
    :ivar time_ms: time of the write
    :ivar heard_ms: time of the last frame of the master; 0 before the first
    :ivar is_connected: whether there is a connection
    :ivar master_end: end offset of the master's log; -1 if it is not known
    :ivar says: a text that describes the state of the replica
    """

    pid: int
    source: str
    time_ms: int
    heard_ms: int
    is_connected: bool
    master_end: int
    says: str

    def write(self, files: FileSystem, path: Path) -> None:
        """Replace the file of the store directory ``path``; raises ``OSError``."""
        _write(files, path, {"role": "slave", **attrs.asdict(self)})


def _write(files: FileSystem, path: Path, content: Mapping[str, Any]) -> None:
    target = path / OWN_DIR / STATUS_FILE
    temporary = target.with_name(f"{STATUS_FILE}.tmp")  # one process replicates, and writes it
    data = json.dumps({"version": _VERSION, **content}, indent=1).encode()
    with closing(files.open(temporary, write=True, create=True)) as file:
        file.write_at(0, data)
        file.truncate(len(data))
    # Both files stay, with their blocks: a full disk may have no room for a new one.
    if not (target.exists() and files.exchange(temporary, target)):
        files.rename(temporary, target)


def read_status(path: Path) -> MasterStatus | None:
    """Read a master's status in the store directory ``path``.

    :returns: ``None`` if there is no status, or if a replica wrote the last one

    Raises :class:`~lakelog.errors.StoreError` if the file is damaged or cannot be read.
    """
    target = path / OWN_DIR / STATUS_FILE
    try:
        found: dict[str, Any] = json.loads(target.read_text())
        version = found.pop("version")
        if version != _VERSION:
            raise ValueError(f"its version is {version}, not {_VERSION}")
        if found.pop("role") != "master":
            return None
        slaves = found.pop("slaves")
        return MasterStatus(slaves=tuple(SlaveStatus(**each) for each in slaves), **found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(
            f"the replication status cannot be read ({error}); the running master writes it again",
            path=target,
        ) from error


class SlaveStatusRow(TypedDict):
    """A slave of a store.

    :ivar acked: largest reported offset; null without a report
    :ivar sent: offset up to which the log was sent
    :ivar connected_ms: time of the connect, in ms since 1970
    """

    slave: str
    acked: int | None
    behind_bytes: int | None
    behind_messages: int | None
    behind_seconds: float | None
    sent: int | None
    learner: bool
    connected_ms: int


class LagRow(TypedDict):
    """A lag of a replica; null where unknown.

    :ivar lag: name of the lag
    """

    lag: str
    bytes: int | None
    messages: int | None
    seconds: float | None


class AdoptedRow(TypedDict):
    """A slave and its present master."""

    broker: str
    master: str
