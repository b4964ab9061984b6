"""One JSON file of ``config/`` and its ``.bak``: which of them counts, and how they are replaced.

RocketMQ writes in place and without a sync, so that a file may be torn; it then reads the ``.bak``,
which holds what the file held before. lakelog does the same, and says so. What it writes itself is
never torn: the ``.bak`` and then the file are each replaced by a rename.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import attrs

from lakelog.config.lenient import parse_object
from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import FileSystem, overwrite_file, read_file, unreadable

_log = logging.getLogger("lakelog")
_BACKUP: Final = ".bak"
_TEMPORARY: Final = ".tmp"

Read = TypeVar("Read")


@attrs.frozen
class Loaded(Generic[Read]):
    """What was read from a file of ``config/``.

    :ivar value: what its content means; of nothing, if neither file is there
    :ivar content: all of its content, with what lakelog does not know
    :ivar from_backup: whether the ``.bak`` was read, because the file itself could not be
    """

    value: Read
    content: dict[str, Any]
    from_backup: bool = False


def load_config(
    files: FileSystem, path: Path, read: Callable[[Mapping[str, Any]], Read]
) -> Loaded[Read]:
    """Read a file, or else its ``.bak``, as RocketMQ does.

    :param read: makes a value of the content; ``ValueError`` if it cannot

    Raises :class:`~lakelog.errors.CorruptConfig` where something is there and nothing can be read,
    and :class:`~lakelog.errors.StoreError` where the system does not let us.
    """
    problems: list[str] = []
    for each in (path, backup_of(path)):
        data = _content(files, each, problems)
        if data:
            try:
                content = parse_object(data)
                loaded = Loaded(read(content), content, from_backup=each != path)
            except (ValueError, TypeError, AttributeError) as error:
                problems.append(f"{each.name} ({len(data)} bytes) cannot be read: {error}")
            else:
                _say(path, problems)
                return loaded
    if problems:
        raise CorruptConfig(
            f"{'; '.join(problems)}. Put a sound copy there, or move both files away to begin anew",
            path=path,
        )
    return Loaded(read({}), {})


def _content(files: FileSystem, path: Path, problems: list[str]) -> bytes | None:
    try:
        data = read_file(files, path)
    except OSError as error:
        raise unreadable(path, error) from error
    if data == b"":
        problems.append(f"{path.name} is empty")
    elif data is None and not path.name.endswith(_BACKUP):
        # Said only if the .bak is there: then somebody lost the file.
        with suppress(OSError):
            if read_file(files, backup_of(path)) is not None:
                problems.append(f"{path.name} is missing")
    return data


def _say(path: Path, problems: list[str]) -> None:
    if problems:
        _log.warning("%s: %s; using %s", path, "; ".join(problems), backup_of(path).name)


def save_config(files: FileSystem, path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file durably; a sound former content goes to the ``.bak`` first.

    A crash at any moment leaves a file that can be read, with the former or the new content.
    ``OSError`` leaves both files as they were, or the ``.bak`` alone replaced.
    """
    files.make_dir(path.parent)
    former = read_file(files, path)
    if former and _is_sound(former):
        _replace(files, backup_of(path), former)
    _replace(files, path, encode(content))
    files.sync_dir(path.parent)


def encode(content: Mapping[str, Any]) -> bytes:
    """Strict JSON, indented by tabs as RocketMQ's."""
    return json.dumps(content, indent="\t", ensure_ascii=False, separators=(",", ":")).encode()


def backup_of(path: Path) -> Path:
    """Where the former content of a file stands."""
    return path.with_name(path.name + _BACKUP)


def _is_sound(data: bytes) -> bool:
    """A torn file must not take the place of the ``.bak`` that stands in for it."""
    try:
        parse_object(data)
    except ValueError:
        return False
    return True


def _replace(files: FileSystem, path: Path, data: bytes) -> None:
    """Sync the new content before it gets the name; the name is for the caller to make durable."""
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        overwrite_file(files, temporary, data)
        files.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)
        raise
