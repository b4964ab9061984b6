"""Reads and replaces a JSON file of ``config/`` and its ``.bak``.

RocketMQ writes the file in place without a sync, so that it may be torn. It then reads the
``.bak``, which holds the former content. lakelog does the same, and logs a warning. Files that
lakelog writes are never torn: first the ``.bak``, then the file is replaced by a rename.

Parses JSON as fastjson writes it, with unquoted keys.

fastjson writes integer keys of a map without quotes, ``{0:500,1:490}``, which is not JSON. The text
is split into strings, bare words and punctuation; a bare word before a colon is quoted. Strings are
never changed.

Maps with integer keys, and the version, in RocketMQ's JSON files.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import attrs

from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import FileSystem, overwrite_file, read_file, unreadable

_TOKEN: Final = re.compile(
    r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<key>[^\s"{}\[\]:,]+)(?=\s*:)|[^\s"{}\[\]:,]+',
    re.DOTALL,
)


def parse_object(content: bytes) -> dict[str, Any]:
    """The object in a file; the last value wins if a key repeats, as in fastjson.

    Raises ``ValueError`` if the content is anything else.

    >>> parse_object(b'{"offsetTable":{"T@g":{0:500,-1:490}},"note":"{2:3}"}')
    {'offsetTable': {'T@g': {'0': 500, '-1': 490}}, 'note': '{2:3}'}
    """
    try:
        found = json.loads(quote_keys(content.decode()))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not an object")
    return found


def quote_keys(text: str) -> str:
    """Quote every bare key in ``text``."""
    return _TOKEN.sub(_mended, text)


def _mended(token: re.Match[str]) -> str:
    key = token["key"]
    return token[0] if key is None else json.dumps(key)


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


def integer_table(found: object, where: str) -> dict[int, int]:
    """A map of integers to integers; raises ``ValueError`` for anything else.

    :param where: the name of the map, for error messages
    """
    return {int(key): _integer(value, f"{where}[{key}]") for key, value in _map(found, where)}


def object_table(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The map under ``name``; empty if it is missing or null.

    Raises ``ValueError`` if the value is no map.
    """
    found = content.get(name)
    return {} if found is None else dict(_map(found, name))


def next_version(former: object, now_ms: int) -> dict[str, Any]:
    """RocketMQ's ``DataVersion``, incremented; ``now_ms`` is in ms since 1970."""
    known = dict(former) if isinstance(former, Mapping) else {}
    counter = known.get("counter")
    return {
        "stateVersion": 0,
        **known,
        "counter": counter + 1 if isinstance(counter, int) else 1,
        "timestamp": now_ms,
    }


def _map(found: object, where: str) -> list[tuple[str, Any]]:
    if not isinstance(found, Mapping):
        raise ValueError(f"{where} is {type(found).__name__}, not a map")
    return list(found.items())


def _integer(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{where} is {value!r}, not an integer")
    return value
