"""The settings that all processes of a store share, in its shared page.

The recovering process writes them. Core settings are stored by their keys, beside:

- ``plugins``: the shared strategies, each with its package
- ``sections``: the values of their sections that differ from the default
- ``digests``: hashes of secret values, and of sections that are too large for the page

The writer is left out: every writer produces the same bytes.

A joining process is checked against them. A different segment size or append callback is refused:
it would read or write another log (perhaps one without encryption). A flush, replicator or checksum
that promises more than the one in force is refused too. So is a missing plugin, or another version
of one. All other differences are logged, and the settings in force apply.
"""

from __future__ import annotations

import json
import logging
import os
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import MissingPlugin, PluginError, SettingsError
from lakelog.hooks import Kind
from lakelog.hooks.kinds import StoreSettings
from lakelog.processes.shared_page import SETTINGS_BYTES, settings_text
from lakelog.registry import Registry
from lakelog.registry.loading import Distribution, kind_text
from lakelog.settings import effective
from lakelog.settings.conversion import convert, hints_of
from lakelog.store.strategies import AUTO, dispatcher_names, flush_name

PLUGINS: Final = "plugins"
SECTIONS: Final = "sections"
DIGESTS: Final = "digests"
SALT: Final = "salt"
_SHARED: Final = (
    *("append", "store_host", "record_crc", "max_message_size_bytes", "segment_size_bytes"),
    *("queues_per_topic", "light_queues", "max_light_queues", "replicator", "commitlog_path"),
    *("cleaner", "disk_watcher", "archive"),
)
_DIGEST_BYTES: Final = 4
"""Long enough to distinguish two values, too short to recover a secret."""


def shared_settings(registry: Registry, settings: effective.Settings) -> dict[str, Any]:
    """The settings shared by all processes of a store, as JSON values."""
    core = settings.core
    shared = {key: getattr(core, key) for key in _SHARED}
    shared["flush"] = flush_name(registry, settings)
    shared["dispatchers"] = list(dispatcher_names(registry, settings))
    shared[PLUGINS] = {
        name: _package(registry, kind, name) for kind, name in _used_strategies(shared)
    }
    salt = os.urandom(8).hex()
    digests, sections = dict[str, str](), dict[str, dict[str, Any]]()
    for name in (*shared[PLUGINS], *_of_maintenance(shared)):
        if name in settings.sections:
            sections[name], hidden = parted(settings.sections[name])
            digests |= {
                effective.dotted(name, key): digest(value, salt) for key, value in hidden.items()
            }
    full = {**shared, SECTIONS: {name: each for name, each in sections.items() if each}}
    if digests:
        full |= {DIGESTS: digests, SALT: salt}
    if len(settings_text(full)) <= SETTINGS_BYTES:
        return full
    whole = {name: digest(values, salt) for name, values in sections.items()}
    return {**shared, DIGESTS: {**digests, **whole}, SALT: salt}


def _used_strategies(shared: Mapping[str, Any]) -> Iterator[tuple[Kind, str]]:
    for kind, key in _KEYS.items():
        if shared[key] is not None:
            yield kind, shared[key]
    for each in shared["dispatchers"]:
        yield Kind.DISPATCHER, each


def _of_maintenance(shared: Mapping[str, Any]) -> tuple[str, ...]:
    """The section of the maintenance, if it has anything to do."""
    return (effective.MAINTENANCE,) if shared["cleaner"] or shared["disk_watcher"] else ()


_KEYS: Final = {
    Kind.APPEND_CALLBACK: "append",
    Kind.FLUSH_STRATEGY: "flush",
    Kind.REPLICATOR: "replicator",
    Kind.CLEANER: "cleaner",
    Kind.DISK_WATCHER: "disk_watcher",
    Kind.SEGMENT_SOURCE: "archive",
}


def _package(registry: Registry, kind: Kind, name: str) -> list[str]:
    """The kind, and the name and version of the package, where known."""
    package = registry.package(kind, name)
    return [kind.name] if package is None else [kind.name, package.name, package.version]


def parted(section: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a section that differ from the default, by key.

    :returns: public values as JSON; then secret values and those that are not JSON
    """
    shown, hidden = dict[str, Any](), dict[str, Any]()
    for key, field in effective.keys_of(type(section)).items():
        value = getattr(section, field.name)
        if value == effective.default_of(field, section):
            continue
        text = _text(value) if field.repr else None
        if text is None:
            hidden[key] = value
        else:
            shown[key] = json.loads(text)
    return shown, hidden


def digest(value: object, salt: str) -> str:
    """A short hash in hex that distinguishes ``value`` from others without revealing it."""
    from hashlib import blake2b  # slow to import

    made = blake2b(digest_size=_DIGEST_BYTES, salt=bytes.fromhex(salt))
    made.update((_text(value) or repr(value)).encode())
    return made.hexdigest()


def _text(value: object) -> str | None:
    try:
        return json.dumps(value, sort_keys=True, default=_plain)
    except TypeError:
        return None


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if attrs.has(type(value)):
        return {key: getattr(value, at.name) for key, at in effective.keys_of(type(value)).items()}
    raise TypeError


_LOG: Final = logging.getLogger("lakelog")
_SAME: Final = ("append", "segment_size_bytes", "commitlog_path", "replicator")
_OF_SERVICES: Final = (Kind.CLEANER.name, Kind.DISK_WATCHER.name)
"""Kinds of plugins that only the process with the services needs."""
OTHERS: Final = "the store's processes"
"""The origin of values taken from the processes that have the store open."""


def agreed(
    registry: Registry, settings: effective.Settings, shared: Mapping[str, Any], path: Path
) -> effective.Settings:
    """Return ``settings`` with the values shared by all processes of the store in ``path``.

    :param shared: see :mod:`lakelog.store.agreeing`

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
    names = (
        *used,
        *(_of_maintenance(shared) if settings.section(effective.ATTACH).take_over else ()),
    )
    sections = {name: _section(registry, settings, name, shared) for name in names}
    made = settings._replace(
        core=attrs.evolve(settings.core, **theirs),
        sections=ChainMap(sections, settings.sections),  # type: ignore[arg-type]  # the stubs want a MutableMapping; nothing writes
    )
    # Others wait for this process: the sections of all other plugins, which are the same, are not
    # read, since the first reading imports the plugin.
    asked = {name: settings.sections[name] for name in sections if name in settings.sections}
    different = _different(settings._replace(sections=asked), made._replace(sections=sections))
    _log_differences(settings, different, path)
    origins = dict.fromkeys([*theirs, *different], OTHERS)
    return made._replace(origins=effective.Origins({**settings.origins, **origins}))


# --- plugins -----------------------------------------------------------------------------------


def _used(settings: effective.Settings, shared: Mapping[str, Any]) -> dict[str, list[str]]:
    """The plugins that this process may need, by name, with kind and package."""
    plugins: Mapping[str, list[str]] = shared.get(PLUGINS, {})
    serves = settings.section(effective.ATTACH).take_over
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


def _check(settings: effective.Settings, key: str, asked: Any, value: Any) -> None:
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


def _section(
    registry: Registry, settings: effective.Settings, name: str, shared: Mapping[str, Any]
) -> Any:
    """A section as in force; values that are not in the page must be equal here."""
    mine = settings.sections.get(name)
    shown, hidden = ({}, {}) if mine is None else parted(mine)
    digests, salt = shared.get(DIGESTS, {}), shared.get(SALT, "")
    stated = {key: each for key, each in digests.items() if key.startswith(f"{name}.")}
    own = {effective.dotted(name, key): digest(value, salt) for key, value in hidden.items()}
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
    hints, fields = hints_of(cls), effective.keys_of(cls)
    values = {
        key: convert(value, hints[fields[key].name], "")
        for key, value in stated.items()
        if key in fields
    }
    return cls(**values, **hidden)


def _other(settings: effective.Settings, name: str) -> SettingsError:
    return SettingsError(
        "the processes that have the store open use another value, which their shared page does "
        "not hold; give all the same value, for example in lakelog/lakelog.toml of the store",
        key=name,
        source=settings.origins.get(name),
    )


# --- the log -----------------------------------------------------------------------------------


def _different(settings: effective.Settings, made: effective.Settings) -> dict[str, str]:
    """Settings whose value in force differs from the requested one, with both values as text."""
    mine = settings.values()
    return {
        key: f"{key} = {mine[key][2] if key in mine else None!r} (theirs: {value!r})"
        for key, (_, _, value) in made.values().items()
        if key not in mine or mine[key][2] not in (value, AUTO, (AUTO,))
    }


def _log_differences(
    settings: effective.Settings, different: Mapping[str, str], path: Path
) -> None:
    """Log once the explicitly chosen settings that do not apply."""
    words = ", ".join(words for key, words in different.items() if settings.is_chosen(key))
    if words:
        _LOG.warning("%s: the processes that have it open use other settings: %s", path, words)
