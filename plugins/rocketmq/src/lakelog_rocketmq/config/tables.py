"""Reads maps with integer keys in RocketMQ's JSON files."""

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


def _map(found: object, where: str) -> list[tuple[str, Any]]:
    if not isinstance(found, Mapping):
        raise ValueError(f"{where} is {type(found).__name__}, not a map")
    return list(found.items())


def _integer(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{where} is {value!r}, not an integer")
    return value
