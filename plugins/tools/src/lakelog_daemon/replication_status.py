"""The file ``lakelog/replication.json``: a master's slaves, or the state of a replica's master.

The process that sends or receives writes it, about once a second while something changes. It is
replaced atomically, and never synced. Times are in ms since 1970; offsets are physical offsets in
bytes. ``role`` is ``master``, with the fields of :class:`MasterStatus`, or ``slave``, with the
fields of :class:`ReplicaStatus`; ``version`` is 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import field
from attrs.validators import deep_mapping, instance_of

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.format.layout import OWN_DIR

STATUS_FILE: Final = "replication.json"
SLAVE_PINS: Final = "ha-"
"""Prefix of the names of the pins by which a master keeps its log for slaves."""
_VERSION: Final = 1
_INT: Final = instance_of(int)
_STR: Final = instance_of(str)
_BOOL: Final = instance_of(bool)


@attrs.frozen(kw_only=True)
class SlaveStatus:
    """One connection of a slave.

    :ivar address: the slave's IP address
    :ivar sent: end offset of the sent bytes; -1 before the slave's first report
    :ivar acked: largest offset that the slave reported; -1 before its first report
    :ivar learner: whether no put waits for the slave
    :ivar since_ms: time of the connect
    """

    address: str = field(validator=_STR)
    sent: int = field(validator=_INT)
    acked: int = field(validator=_INT)
    learner: bool = field(validator=_BOOL)
    since_ms: int = field(validator=_INT)


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

    pid: int = field(validator=_INT)
    listening: str = field(validator=_STR)
    time_ms: int = field(validator=_INT)
    end: int = field(validator=_INT)
    copied: int = field(validator=_INT)
    in_sync_replicas: int = field(validator=_INT)
    slaves: tuple[SlaveStatus, ...] = ()
    refused: Mapping[str, str] = field(factory=dict, validator=deep_mapping(_STR, _STR))


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

    pid: int = field(validator=_INT)
    source: str = field(validator=_STR)
    time_ms: int = field(validator=_INT)
    heard_ms: int = field(validator=_INT)
    is_connected: bool = field(validator=_BOOL)
    master_end: int = field(validator=_INT)
    says: str = field(validator=_STR)


def write_status(files: FileSystem, path: Path, status: MasterStatus | ReplicaStatus) -> None:
    """Replace the file of the store directory ``path``; raises ``OSError``."""
    role = "master" if isinstance(status, MasterStatus) else "slave"
    target = path / OWN_DIR / STATUS_FILE
    temporary = target.with_name(f"{STATUS_FILE}.tmp")  # one process replicates, and writes it
    content = {"version": _VERSION, "role": role, **attrs.asdict(status)}
    data = json.dumps(content, indent=1).encode()
    with closing(files.open(temporary, write=True, create=True)) as file:
        file.write_at(0, data)
        file.truncate(len(data))
    # Both files stay, with their blocks: a full disk may have no room for a new one.
    if not (target.exists() and files.exchange(temporary, target)):
        files.rename(temporary, target)


def read_status(files: FileSystem, path: Path) -> MasterStatus | ReplicaStatus | None:
    """Read the last status in the store directory ``path``; ``None`` if there is none.

    Raises :class:`~lakelog.errors.StoreError` if the file is damaged or cannot be read.
    """
    target = path / OWN_DIR / STATUS_FILE
    try:
        data = read_file(files, target)
        return None if data is None else _parsed(data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"the replication status cannot be read ({error}); the process that replicates writes "
            "it again",
            path=target,
        ) from error


def _parsed(data: bytes) -> MasterStatus | ReplicaStatus:
    found: dict[str, Any] = json.loads(data)
    version, role = found.pop("version"), found.pop("role")
    if version != _VERSION:
        raise ValueError(f"its version is {version}, not {_VERSION}")
    if role == "slave":
        return ReplicaStatus(**found)
    if role != "master":
        raise ValueError(f"its role is {role!r}, neither 'master' nor 'slave'")
    slaves = tuple(SlaveStatus(**each) for each in found.pop("slaves"))
    return MasterStatus(slaves=slaves, **found)
