"""Maps with integer keys, and the version, in RocketMQ's JSON files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
