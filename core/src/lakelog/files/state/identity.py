"""``lakelog/store.json``: the store's UUID, and the version of lakelog's own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import attrs

from lakelog.files.filesystem import FileSystem, read_file, write_file
from lakelog_format.fields.layout import OWN_DIR, STORE_FILE
from lakelog_interfaces.errors import NotAStore

FORMAT_VERSION: Final = 1
_SHOWN: Final = 60


@attrs.frozen
class StoreIdentity:
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
    identity = StoreIdentity(str(uuid4()), new)
    content = {"version": FORMAT_VERSION, **attrs.asdict(identity)}
    write_own(files, path, STORE_FILE, content, indent=2)
    return identity
