"""Checks the settings of a joining process against those in force in the store.

A different segment size or append callback is refused: it would read or write another log
(perhaps one without encryption). A flush, replicator or checksum that promises more than the
one in force is refused too. So is a missing plugin, or another version of one. All other
differences are logged, and the settings in force apply.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import MissingPlugin, PluginError, SettingsError
from lakelog.interfaces import Kind
from lakelog.registry import Registry
from lakelog.registry.discovery import Distribution
from lakelog.registry.missing import kind_text
from lakelog.settings.catalog import ATTACH, dotted, keys_of
from lakelog.settings.conversion import convert, hints_of
from lakelog.settings.effective import Settings
from lakelog.settings.model import StoreSettings
from lakelog.store.strategies import AUTO
from lakelog_processes.shared_settings import (
    DIGESTS,
    PLUGINS,
    SALT,
    SECTIONS,
    digest,
    parted,
)

_LOG: Final = logging.getLogger("lakelog")
_SAME: Final = ("append", "segment_size_bytes", "commitlog_path", "replicator")
_OF_SERVICES: Final = (Kind.CLEANER.name, Kind.DISK_WATCHER.name, Kind.STORE_MAINTENANCE.name)
"""Kinds of plugins that only the process with the services needs."""
OTHERS: Final = "the store's processes"
"""The origin of values taken from the processes that have the store open."""


def agreed(
    registry: Registry, settings: Settings, shared: Mapping[str, Any], path: Path
) -> Settings:
    """Return ``settings`` with the values shared by all processes of the store in ``path``.

    :param shared: see :mod:`lakelog_processes.shared_settings`

    Raises :class:`~lakelog.errors.SettingsError` if a requested value conflicts, and
    :class:`~lakelog.errors.PluginError` if a plugin is missing or has another version.
    """
    used = _used(settings, shared)
    for name, (kind, *package) in used.items():
        _check_plugin(registry, Kind[kind], name, package, path)
    theirs = _theirs(settings.core, shared)
    for key, value in theirs.items():
        asked = getattr(settings.core, key)
        if settings.is_chosen(key) and asked != value:
            _check(settings, key, asked, value)
    sections = {name: _section(registry, settings, name, shared) for name in used}
    made = attrs.evolve(
        settings,
        core=attrs.evolve(settings.core, **theirs),
        sections={**settings.sections, **sections},
    )
    different = _different(settings, made)
    _log_differences(settings, different, path)
    origins = dict.fromkeys([*theirs, *different], OTHERS)
    return attrs.evolve(made, origins={**settings.origins, **origins})


# --- plugins -----------------------------------------------------------------------------------


def _used(settings: Settings, shared: Mapping[str, Any]) -> dict[str, list[str]]:
    """The plugins that this process may need, by name, with kind and package."""
    plugins: Mapping[str, list[str]] = shared.get(PLUGINS, {})
    serves = settings.section(ATTACH).take_over
    return {name: each for name, each in plugins.items() if serves or each[0] not in _OF_SERVICES}


def _check_plugin(
    registry: Registry, kind: Kind, name: str, package: list[str], path: Path
) -> None:
    theirs = Distribution(*package) if package else None
    of = f" of {theirs}" if theirs else ""
    used = f"{path}: the processes that have it open use the {kind_text(kind)} {name!r}{of}"
    try:
        mine = registry.package(kind, name)
    except MissingPlugin as error:
        words = str(error)
        known = any(each in words for each in ("pip install", "plugins=[", "switched off"))
        advice = "" if known or theirs is None else f"; pip install {theirs.name}=={theirs.version}"
        raise MissingPlugin(f"{used}: {words}{advice}") from None
    if theirs is None or mine is None or mine == theirs:
        return
    if _series(mine) != _series(theirs):
        raise PluginError(
            f"{used}, and here is {mine}: install the same version for all of them, and close the "
            "store in those that have an older one"
        )
    _LOG.warning("%s, and here is %s", used, mine)


def _series(package: Distribution) -> tuple[str, ...]:
    """The part of a version that patch releases share."""
    return package.normalized_name, *package.version.split(".")[:2]


# --- the core ----------------------------------------------------------------------------------


def _theirs(core: StoreSettings, shared: Mapping[str, Any]) -> dict[str, Any]:
    keys = {field.name for field in attrs.fields(type(core))}
    theirs = {key: value for key, value in shared.items() if key in keys}
    if theirs.get("commitlog_path") is not None:
        theirs["commitlog_path"] = Path(theirs["commitlog_path"])
    if "dispatchers" in theirs:
        theirs["dispatchers"] = tuple(theirs["dispatchers"])
    return theirs


def _check(settings: Settings, key: str, asked: Any, value: Any) -> None:
    """Raise if this process must not continue without the requested value."""
    if key in _SAME or _is_less(key, asked):
        raise SettingsError(
            f"{asked!r} was given, but the processes that have the store open use {value!r}; "
            "give the same value, or leave it out",
            key=key,
            source=settings.origins.get(key),
        )


def _is_less(key: str, asked: Any) -> bool:
    """Whether the value in force is known to promise less than the requested one."""
    return (key == "flush" and asked not in ("auto", "none")) or (
        key == "record_crc" and asked is True
    )


# --- sections ----------------------------------------------------------------------------------


def _section(registry: Registry, settings: Settings, name: str, shared: Mapping[str, Any]) -> Any:
    """A section as in force; values that are not in the page must be equal here."""
    mine = settings.sections.get(name)
    shown, hidden = ({}, {}) if mine is None else parted(mine)
    digests, salt = shared.get(DIGESTS, {}), shared.get(SALT, "")
    stated = {key: each for key, each in digests.items() if key.startswith(f"{name}.")}
    own = {dotted(name, key): digest(value, salt) for key, value in hidden.items()}
    for key in sorted({*stated, *own}):
        if stated.get(key) != own.get(key):
            raise _other(settings, key)
    if name in digests:
        if digests[name] != digest(shown, salt):
            raise _other(settings, f"[{name}]")
        return mine
    cls = registry.sections()[name] if mine is None else type(mine)
    return _built(cls, shared.get(SECTIONS, {}).get(name, {}), hidden)


def _built(cls: type[Any], stated: Mapping[str, Any], hidden: Mapping[str, Any]) -> Any:
    """Build a section from the JSON values ``stated``; keys of another version are ignored."""
    hints, fields = hints_of(cls), keys_of(cls)
    values = {
        key: convert(value, hints[fields[key].name], "")
        for key, value in stated.items()
        if key in fields
    }
    return cls(**values, **hidden)


def _other(settings: Settings, name: str) -> SettingsError:
    return SettingsError(
        "the processes that have the store open use another value, which their shared page does "
        "not hold; give all the same value, for example in lakelog/lakelog.toml of the store",
        key=name,
        source=settings.origins.get(name),
    )


# --- the log -----------------------------------------------------------------------------------


def _different(settings: Settings, made: Settings) -> dict[str, str]:
    """Settings whose value in force differs from the requested one, with both values as text."""
    mine = settings.values()
    return {
        key: f"{key} = {mine[key][2] if key in mine else None!r} (theirs: {value!r})"
        for key, (_, _, value) in made.values().items()
        if key not in mine or mine[key][2] not in (value, AUTO, (AUTO,))
    }


def _log_differences(settings: Settings, different: Mapping[str, str], path: Path) -> None:
    """Log once the explicitly chosen settings that do not apply."""
    words = ", ".join(words for key, words in different.items() if settings.is_chosen(key))
    if words:
        _LOG.warning("%s: the processes that have it open use other settings: %s", path, words)
