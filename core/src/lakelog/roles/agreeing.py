"""The settings of a process that joins others: theirs are in force, and promises hold.

Who asked for another segment size would read another log, who asked for another append callback
would store other records (perhaps not encrypted), and who asked for a flush, a replicator
or a checksum that the others do not have would be promised less than was asked for: all are
refused. Whatever else was asked for and is not in force is told in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import SettingsError
from lakelog.settings.effective import Settings
from lakelog.settings.model import StoreSettings

_LOG: Final = logging.getLogger("lakelog")
_SAME: Final = ("append", "segment_size_bytes", "commitlog_path", "replicator")
OTHERS: Final = "the store's processes"
"""Where a value came from that those have that have the store open."""


def agreed(settings: Settings, said: Mapping[str, Any], path: Path) -> Settings:
    """``settings`` with those that all processes of the store in ``path`` have.

    :param said: these, by key; what is no key of :class:`.StoreSettings` is passed over

    Raises :class:`~lakelog.errors.SettingsError` where what was asked for cannot be had.
    """
    theirs = _theirs(settings.core, said)
    for key, value in theirs.items():
        asked = getattr(settings.core, key)
        if settings.is_chosen(key) and asked != value:
            _check(settings, key, asked, value)
            _LOG.warning(
                "%s: %s = %r plays no part here: the processes that have it open go by %r",
                *(path, key, asked, value),
            )
    origins = {**settings.origins, **dict.fromkeys(theirs, OTHERS)}
    return attrs.evolve(settings, core=attrs.evolve(settings.core, **theirs), origins=origins)


def _theirs(core: StoreSettings, said: Mapping[str, Any]) -> dict[str, Any]:
    keys = {field.name for field in attrs.fields(type(core))}
    theirs = {key: value for key, value in said.items() if key in keys}
    if theirs.get("commitlog_path") is not None:
        theirs["commitlog_path"] = Path(theirs["commitlog_path"])
    return theirs


def _check(settings: Settings, key: str, asked: Any, value: Any) -> None:
    """Whether one may go on without what was asked for."""
    if key in _SAME or _is_less(key, asked):
        raise SettingsError(
            f"{asked!r} was asked for, but the processes that have the store open go by {value!r}; "
            "ask for the same, or leave it out",
            key=key,
            source=settings.origins.get(key),
        )


def _is_less(key: str, asked: Any) -> bool:
    """Whether the others' value promises less, as far as that can be known."""
    return (key == "flush" and asked not in ("auto", "none")) or (
        key == "record_crc" and asked is True
    )
