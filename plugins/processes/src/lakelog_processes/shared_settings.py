"""The settings that a recovering process writes into the shared page for joining processes.

Core settings are stored by their keys, beside:

- ``plugins``: the shared strategies, each with its package
- ``sections``: the values of their sections that differ from the default
- ``digests``: hashes of secret values, and of sections that are too large for the page

The writer is left out: every writer produces the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.files.pages.shared_page import SETTINGS_BYTES, settings_text
from lakelog.interfaces import Kind
from lakelog.registry import Registry
from lakelog.settings.catalog import default_of, dotted, keys_of
from lakelog.settings.effective import Settings
from lakelog.store.strategies import dispatcher_names, flush_name

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


def shared_settings(registry: Registry, settings: Settings) -> dict[str, Any]:
    """The settings shared by all processes of a store, as JSON values."""
    core = settings.core
    shared = {key: getattr(core, key) for key in _SHARED}
    shared["flush"] = flush_name(registry, settings)
    shared["dispatchers"] = list(dispatcher_names(registry, settings))
    shared[PLUGINS] = {
        name: _package(registry, kind, name) for kind, name in _used(registry, shared)
    }
    salt = os.urandom(8).hex()
    digests, sections = dict[str, str](), dict[str, dict[str, Any]]()
    for name in shared[PLUGINS]:
        if name in settings.sections:
            sections[name], hidden = parted(settings.sections[name])
            digests |= {dotted(name, key): digest(value, salt) for key, value in hidden.items()}
    full = {**shared, SECTIONS: {name: each for name, each in sections.items() if each}}
    if digests:
        full |= {DIGESTS: digests, SALT: salt}
    if len(settings_text(full)) <= SETTINGS_BYTES:
        return full
    whole = {name: digest(values, salt) for name, values in sections.items()}
    return {**shared, DIGESTS: {**digests, **whole}, SALT: salt}


def _used(registry: Registry, shared: Mapping[str, Any]) -> Iterator[tuple[Kind, str]]:
    for kind, key in _KEYS.items():
        if shared[key] is not None:
            yield kind, shared[key]
    for each in shared["dispatchers"]:
        yield Kind.DISPATCHER, each
    if shared["cleaner"] or shared["disk_watcher"]:
        for each in registry.names(Kind.STORE_MAINTENANCE):
            yield Kind.STORE_MAINTENANCE, each


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
    for key, field in keys_of(type(section)).items():
        value = getattr(section, field.name)
        if value == default_of(field, section):
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
        return {key: getattr(value, at.name) for key, at in keys_of(type(value)).items()}
    raise TypeError
