"""Names of columns in a table for the fields of a schema.

- characters other than ASCII letters, digits and underscores become underscores, as engines treat
  them differently
- a name that is also a column of messages gets the prefix ``body_``
- names that are equal after this, or differ only in case, are refused, as engines ignore case
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from lakelog.errors import SettingsError
from lakelog_lake.log.columns import ERROR, NAMES

PREFIX: Final = "body_"
_OURS: Final = frozenset((*NAMES, ERROR, "day", "hour"))
_ODD: Final = re.compile(r"[^A-Za-z0-9_]")


def column_names(keys: Sequence[str]) -> tuple[str, ...]:
    """The columns for the fields ``keys`` of a body; raises :class:`ValueError`."""
    plain = (_plain(key) for key in keys)
    return _check_distinct(
        keys, tuple(PREFIX + name if name.lower() in _OURS else name for name in plain)
    )


def field_names(keys: Sequence[str]) -> tuple[str, ...]:
    """The names for the fields of a struct, which cannot collide with columns of messages."""
    return _check_distinct(keys, tuple(map(_plain, keys)))


def _plain(key: str) -> str:
    return _ODD.sub("_", key) or "_"


def _check_distinct(keys: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for key, name in zip(keys, names, strict=True):
        other = seen.setdefault(name.lower(), key)
        if other != key:
            raise ValueError(f"{other!r} and {key!r} would both be column {name}")
    return names


KEY: Final = "--body"


def refused(what: str, source: str) -> SettingsError:
    """The error for an invalid file ``source``."""
    return SettingsError(what, key=KEY, source=source)


def needs(package: str, extra: str) -> SettingsError:
    """The error for a missing ``package``."""
    return SettingsError(
        f"this needs {package}: pip install 'lakelog-lake[{extra}]'",
        key=KEY,
    )
