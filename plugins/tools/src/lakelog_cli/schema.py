"""A JSON Schema (draft 2020-12) of all settings in TOML form, for editors and checks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, Literal, get_args, get_origin

import attrs

from lakelog.settings.catalog import CORE, OWN_SECTIONS, default_of, keys_of, required
from lakelog.settings.conversion import hints_of, is_union, items_of, without_none
from lakelog.settings.units import pattern_for

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_NAMES: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}
_IVAR: Final = re.compile(r"^:ivar (\w+):\s*(.*?)(?=^\s*$|^:|\Z)", re.MULTILINE | re.DOTALL)

Schema = dict[str, Any]


def schema(sections: Mapping[str, type[Any]]) -> Schema:
    """The schema of the core's keys and of a table for each of ``sections``."""
    classes = {**OWN_SECTIONS, **sections}
    made = {name: section_schema(classes[name]) for name in sorted(classes)}
    core = made.pop(CORE)
    properties = core["properties"] | made
    return {"$schema": DRAFT, "title": "lakelog settings", **core, "properties": properties}


def section_schema(cls: type[Any]) -> Schema:
    """The schema of one settings class."""
    hints, words = hints_of(cls), ivars_of(cls)
    properties = {}
    for key, field in keys_of(cls).items():
        properties[key] = value_schema(hints[field.name], key)
        if field.name in words:
            properties[key]["description"] = words[field.name]
        if default_of(field) not in (attrs.NOTHING, None):
            properties[key]["default"] = plain_value(default_of(field))
    made: Schema = {
        "description": inspect.cleandoc(cls.__dict__.get("__doc__") or "").partition("\n")[0],
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return made | ({"required": required(cls)} if required(cls) else {})


def ivars_of(cls: type[Any]) -> dict[str, str]:
    """The ``:ivar`` lines in a class's docstring by field name, including those of base classes."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        found |= {name: " ".join(words.split()) for name, words in _IVAR.findall(text)}
    return found


def value_schema(hint: Any, key: str = "") -> Schema:
    """The schema of a type; the suffix of ``key`` determines its unit.

    An empty string unsets an optional value, because TOML has no null.
    """
    bare, optional = without_none(hint)
    pattern = pattern_for(key) if bare in (int, float) else None
    made = _plain(bare)
    if pattern:
        made = {"type": [_NAMES[bare], "string"], "minimum": 0, "pattern": pattern}
    return {"anyOf": [made, {"const": ""}]} if optional and made.get("type") != "string" else made


def _plain(hint: Any) -> Schema:
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if is_union(hint):
        return {"anyOf": [_plain(arg) for arg in args]}
    if kind is Literal:
        return {"enum": list(args)}
    if items_of(hint):
        items = [_plain(arg) for arg in args if arg is not Ellipsis]
        return {"type": "array", **({"items": items[0]} if len(set(map(str, items))) == 1 else {})}
    return _of_class(kind) if isinstance(kind, type) else {}


def _of_class(kind: type[Any]) -> Schema:
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if attrs.has(kind):
        return section_schema(kind)
    if issubclass(kind, PurePath):
        return {"type": "string"}
    return {"type": "object"} if issubclass(kind, Mapping) else {}


def plain_value(value: Any) -> Any:
    """A setting's value in a form that TOML and JSON support."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, tuple | list | set | frozenset):
        return [plain_value(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    return attrs.asdict(value) if attrs.has(type(value)) else value
