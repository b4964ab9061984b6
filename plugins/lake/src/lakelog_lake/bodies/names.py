"""What the columns of a schema are called in a table.

- what is no letter, digit or underscore of ASCII becomes an underscore: engines differ on the rest
- a name that a message has a column for gets ``body_`` before it
- engines do not tell ``A`` from ``a``: two that differ so, or became the same, are refused
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
    return _told_apart(
        keys, tuple(PREFIX + name if name.lower() in _OURS else name for name in plain)
    )


def field_names(keys: Sequence[str]) -> tuple[str, ...]:
    """The same for the fields of a struct, where no column of a message is."""
    return _told_apart(keys, tuple(map(_plain, keys)))


def _plain(key: str) -> str:
    return _ODD.sub("_", key) or "_"


def _told_apart(keys: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for key, name in zip(keys, names, strict=True):
        other = seen.setdefault(name.lower(), key)
        if other != key:
            raise ValueError(f"{other!r} and {key!r} would be the same column, {name}")
    return names


KEY: Final = "--body"


def refused(what: str, source: str) -> SettingsError:
    """The error for what is wrong in the file ``source``."""
    return SettingsError(what, key=KEY, source=source)


def needs(package: str, extra: str) -> SettingsError:
    """The error where ``package`` is not installed."""
    return SettingsError(
        f"this needs {package}: pip install 'lakelog-spark[{extra}]'",
        key=KEY,
    )
