"""The small JSON files in ``lakelog/`` that say what a store is, and the readers of such files.

``store.json``: the store's UUID, and the version of lakelog's own files.

``replica.json``: the log is a copy of a master's, and only the master may append to it.

``{"version": 1, "source": "HOST:PORT", "cut": OFFSET}``. ``source`` is the master's HA port.
``cut`` is mostly null. Otherwise the copy differs from its master from that offset on, and the next
open cuts it there, before anything is received. The checkpoint's ``confirm_offset`` is the end of
the bytes that the master cannot lose; for readers of a replica it is the durable end.

``strategies.json``: the append callback and the writer, if they may store other bytes than the
core's own. A store opened to write without one of them would be taken for damaged, or mix both
kinds of bytes, so it is refused; a reader logs a warning.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from lakelog.errors import NotAStore, StoreError
from lakelog.files.filesystem import FileSystem, read_file, unreadable, write_file
from lakelog.format.layout import OWN_DIR, STORE_FILE, STRATEGIES_FILE

FORMAT_VERSION: Final = 1
REPLICA_FILE: Final = "replica.json"
_VERSION: Final = 1
_SHOWN: Final = 60
_LOG: Final = logging.getLogger("lakelog")
Content = TypeVar("Content")


class StoreIdentity(NamedTuple):
    """The content of the file, apart from its version.

    :ivar uuid: never changes
    :ivar created_by_lakelog: whether lakelog created the directory
    """

    uuid: str
    created_by_lakelog: bool


def read_identity(files: FileSystem, path: Path) -> StoreIdentity | None:
    """The identity of the store directory ``path``, if lakelog has ever owned it.

    Raises :class:`~lakelog.errors.NotAStore` for a damaged file or a newer version.
    """
    file = path / OWN_DIR / STORE_FILE
    content = read_file(files, file)
    if content is None:
        return None
    match parsed(content):
        case {"version": int(version)} if version != FORMAT_VERSION:
            raise NotAStore(
                f"its format version is {version}; this lakelog knows {FORMAT_VERSION}; upgrade it",
                path=file,
            )
        case {"version": int(), "uuid": str(uuid), "created_by_lakelog": bool(created)}:
            return StoreIdentity(uuid, created)
    raise NotAStore(
        "it is damaged: expected an object with version, uuid and created_by_lakelog, found "
        f"{shown(content)}; delete it to give the store a new identity",
        path=file,
    )


def parsed(content: bytes) -> Any:
    """Parse the JSON of one of lakelog's own files; ``None`` if it is invalid."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def read_own(
    files: FileSystem, path: Path, name: str, parse: Callable[[Any], Content]
) -> Content | None:
    """The content of a JSON file in the folder ``lakelog`` of the store ``path``.

    For files that a store can do without: ``None`` if the file is missing, and, with a warning, if
    it is damaged. The others use :func:`parsed` and :func:`shown` for an error of their own.

    :param parse: gets the JSON value; may raise any error of a wrong value or type

    Raises :class:`~lakelog.errors.ReadFailed` if the file cannot be read.
    """
    try:
        content = read_file(files, path / OWN_DIR / name)
    except OSError as error:
        raise unreadable(path / OWN_DIR / name, error) from error
    if content is None:
        return None
    try:
        return parse(json.loads(content))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        _LOG.warning("%s is damaged and was ignored: %s", name, error)
        return None


def write_own(files: FileSystem, path: Path, name: str, content: Any, **style: Any) -> None:
    """Write a JSON file durably in the folder ``lakelog`` of the store ``path``.

    Creates the folder if missing.

    :param style: arguments of ``json.dumps``
    """
    files.make_dir(path / OWN_DIR)
    write_file(files, path / OWN_DIR / name, json.dumps(content, **style).encode() + b"\n")


def shown(content: bytes) -> str:
    """The content of one of lakelog's own files, shortened for an error message."""
    if not content:
        return "nothing"
    text = " ".join(content[: 4 * _SHOWN].decode(errors="replace").split())
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def make_identity(files: FileSystem, path: Path, *, new: bool) -> StoreIdentity:
    """Create the identity of the store directory ``path``, durably.

    :param new: whether lakelog is creating the store
    """
    from uuid import uuid4  # once in the life of a store

    identity = StoreIdentity(str(uuid4()), new)
    content = {"version": FORMAT_VERSION, **identity._asdict()}
    write_own(files, path, STORE_FILE, content, indent=2)
    return identity


class ReplicaState(NamedTuple):
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
    content = {"version": _VERSION, **state._asdict()}
    write_own(files, path, REPLICA_FILE, content)


def remove_replica(files: FileSystem, path: Path) -> None:
    """Turn the replica into an ordinary store, durably; no other process may have it open."""
    files.unlink(path / OWN_DIR / REPLICA_FILE)
    files.sync_dir(path / OWN_DIR)


class NotedStrategy(NamedTuple):
    """A strategy that determines the bytes of the log, other than the core's own.

    :ivar name: its name in the settings
    :ivar package: the package that provides it, and its ``version``; empty if unknown
    :ivar whole_records: whether its records are whole without it: it changes only bodies
    """

    name: str
    package: str = ""
    version: str = ""
    whole_records: bool = False


def read_strategies(files: FileSystem, path: Path) -> dict[str, NotedStrategy]:
    """The noted strategies of a store, by the setting that chooses them; raises ``OSError``."""
    return read_own(files, path, STRATEGIES_FILE, _strategies) or {}


def note_strategies(files: FileSystem, path: Path, used: Mapping[str, NotedStrategy]) -> None:
    """Note strategies durably; called by the owner before its first append."""
    known = read_strategies(files, path)
    if known != {**known, **used}:
        noted = {key: each._asdict() for key, each in {**known, **used}.items()}
        write_own(files, path, STRATEGIES_FILE, {"version": _VERSION, **noted}, indent=1)


def _strategies(found: Any) -> dict[str, NotedStrategy]:
    rows = {key: found[key] for key in ("append", "writer") if key in found}
    return {key: NotedStrategy(**row) for key, row in rows.items()}
