"""Reads and replaces a JSON file of ``config/`` and its ``.bak``.

RocketMQ writes the file in place without a sync, so that it may be torn. It then reads the
``.bak``, which holds the former content. lakelog does the same, and logs a warning. Files that
lakelog writes are never torn: first the ``.bak``, then the file is replaced by a rename.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import attrs

from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import FileSystem, overwrite_file, read_file, unreadable
from lakelog_rocketmq.config.lenient import parse_object

_log = logging.getLogger("lakelog")
_BACKUP: Final = ".bak"
_TEMPORARY: Final = ".tmp"

Read = TypeVar("Read")


@attrs.frozen
class Loaded(Generic[Read]):
    """The content of a file of ``config/``.

    :ivar value: the parsed content; that of an empty object if neither file exists
    :ivar content: the whole content, including keys unknown to lakelog
    :ivar from_backup: whether the ``.bak`` was read because the file itself was unreadable
    """

    value: Read
    content: dict[str, Any]
    from_backup: bool = False


def load_config(
    files: FileSystem, path: Path, read: Callable[[Mapping[str, Any]], Read]
) -> Loaded[Read]:
    """Read a file, or else its ``.bak``, as RocketMQ does.

    :param read: converts the content to a value; raises ``ValueError`` if it cannot

    Raises :class:`~lakelog.errors.CorruptConfig` if a file exists but none can be parsed, and
    :class:`~lakelog.errors.StoreError` if the system refuses to read it.
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
                _log_problems(path, problems)
                return loaded
    if problems:
        raise CorruptConfig(
            f"{'; '.join(problems)}. Restore a sound copy, or move both files away to begin anew",
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
        # Report it only if the .bak exists: then the file was lost.
        with suppress(OSError):
            if read_file(files, backup_of(path)) is not None:
                problems.append(f"{path.name} is missing")
    return data


def _log_problems(path: Path, problems: list[str]) -> None:
    if problems:
        _log.warning("%s: %s; using %s", path, "; ".join(problems), backup_of(path).name)


def save_config(files: FileSystem, path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file durably; valid former content is saved as the ``.bak`` first.

    A crash at any time leaves a readable file, with the former or the new content. After an
    ``OSError``, at most the ``.bak`` was replaced.
    """
    files.make_dir(path.parent)
    former = read_file(files, path)
    if former and _is_sound(former):
        _replace(files, backup_of(path), former)
    _replace(files, path, encode(content))
    files.sync_dir(path.parent)


def encode(content: Mapping[str, Any]) -> bytes:
    """Encode as strict JSON, indented by tabs like RocketMQ's."""
    return json.dumps(content, indent="\t", ensure_ascii=False, separators=(",", ":")).encode()


def backup_of(path: Path) -> Path:
    """The path of the ``.bak`` of a file."""
    return path.with_name(path.name + _BACKUP)


def _is_sound(data: bytes) -> bool:
    """Whether the content is valid; a torn file must not replace a valid ``.bak``."""
    try:
        parse_object(data)
    except ValueError:
        return False
    return True


def _replace(files: FileSystem, path: Path, data: bytes) -> None:
    """Write and sync the new content, then rename it; the caller syncs the directory."""
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        overwrite_file(files, temporary, data)
        files.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)
        raise
