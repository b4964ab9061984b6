"""A JSON Schema (draft 2020-12) of all settings in TOML form, for editors and checks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, Literal, get_args, get_origin

import attrs

from lakelog.settings.catalog import Catalog, default_of, keys_of
from lakelog.settings.given import CORE
from lakelog.settings.hints import hints_of, is_union, items_of, without_none
from lakelog.settings.ivars import ivars_of, summary_of
from lakelog.settings.structure import required
from lakelog.settings.units import pattern_for

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_NAMES: Final[Mapping[Any, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}

Schema = dict[str, Any]


def schema(sections: Mapping[str, type[Any]]) -> Schema:
    """The schema of the core's keys and of a table for each of ``sections``."""
    catalog = Catalog.of(sections)
    tables = {name: section_schema(catalog.classes[name]) for name in catalog.sections}
    core = section_schema(catalog.classes[CORE])
    properties = core["properties"] | tables
    return {"$schema": DRAFT, "title": "lakelog settings", **core, "properties": properties}


def section_schema(cls: type[Any]) -> Schema:
    """The schema of one settings class."""
    hints, words = hints_of(cls), ivars_of(cls)
    made: Schema = {
        "description": summary_of(cls),
        "type": "object",
        "properties": {
            key: _described(value_schema(hints[field.name], key), field, words.get(field.name))
            for key, field in keys_of(cls).items()
        },
        "additionalProperties": False,
    }
    return made | ({"required": required(cls)} if required(cls) else {})


def value_schema(hint: Any, key: str = "") -> Schema:
    """The schema of a type; the suffix of ``key`` determines its unit.

    An empty string unsets an optional value, because TOML has no null.
    """
    bare, optional = without_none(hint)
    pattern = pattern_for(key) if bare in (int, float) else None
    made = _with_unit(bare, pattern) if pattern else _plain(bare)
    return {"anyOf": [made, {"const": ""}]} if optional and made.get("type") != "string" else made


def _with_unit(hint: Any, pattern: str) -> Schema:
    return {"type": [_NAMES[hint], "string"], "minimum": 0, "pattern": pattern}


def _plain(hint: Any) -> Schema:
    if is_union(hint):
        return {"anyOf": [_plain(arg) for arg in get_args(hint)]}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if items_of(hint):
        items = [_plain(arg) for arg in get_args(hint) if arg is not Ellipsis]
        return {"type": "array", **({"items": items[0]} if len(set(map(str, items))) == 1 else {})}
    return _of_class(get_origin(hint) or hint)


def _of_class(kind: Any) -> Schema:
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if not isinstance(kind, type):
        return {}
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if attrs.has(kind):
        return section_schema(kind)
    if issubclass(kind, PurePath):
        return {"type": "string"}
    return {"type": "object"} if issubclass(kind, Mapping) else {}


def _described(made: Schema, field: attrs.Attribute[Any], words: str | None) -> Schema:
    default = default_of(field)
    described = {"description": words} if words else {}
    known = default is not attrs.NOTHING and default is not None
    return made | described | ({"default": plain_value(default)} if known else {})


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
