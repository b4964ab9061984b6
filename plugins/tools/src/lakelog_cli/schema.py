"""JSON Schemas (draft 2020-12): of all settings in TOML form, and of what commands print as JSON.

A class of settings, or of printed objects, is an attrs class or a ``TypedDict``. Its ``:ivar``
lines describe the fields.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Final, Literal, NotRequired, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as is_typed_dict

import attrs

from lakelog.settings.conversion import hints_of, pattern_for, without_none
from lakelog.settings.effective import CORE, OWN_SECTIONS, default_of, keys_of, required
from lakelog_cli.output import Printed, plain_value

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_NAMES: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    NoneType: "null",
}
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
    made = type_schema(bare, section_schema)
    if pattern:
        made = {"type": [_NAMES[bare], "string"], "minimum": 0, "pattern": pattern}
    return {"anyOf": [made, {"const": ""}]} if optional and made.get("type") != "string" else made


def schema_of(printed: Printed) -> Schema:
    """The JSON Schema (draft 2020-12) of one object."""
    kinds = [kind_schema(each) for each in printed.kinds]
    found = kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {"type": "object"}
    return {"$schema": DRAFT, **found}


def kind_schema(kind: type) -> Schema:
    """The schema of a class."""
    words = ivars_of(kind)
    properties = {name: type_schema(hint) for name, hint in fields_of(kind).items()}
    for name in properties.keys() & words.keys():
        properties[name]["description"] = words[name]
    return {
        "title": kind.__name__,
        "description": first_line(kind),
        "type": "object",
        "properties": properties,
        "required": sorted(required_of(kind)),
        "additionalProperties": False,
    }


def fields_of(kind: type) -> dict[str, Any]:
    """The type of each field."""
    return get_type_hints(kind)


def required_of(kind: type) -> frozenset[str]:
    """The fields that are always there."""
    hints = get_type_hints(kind, include_extras=True)
    return frozenset(name for name, hint in hints.items() if get_origin(hint) is not NotRequired)


def first_line(kind: type) -> str:
    """The first line of a class's docstring, which describes its objects."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]


def type_schema(hint: Any, of_class: Callable[[type[Any]], Schema] = kind_schema) -> Schema:
    """The schema of the type of a field.

    :param of_class: returns the schema of a class with fields
    """
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if kind is Literal:
        return {"enum": list(arguments)}
    inner = [type_schema(each, of_class) for each in arguments if each is not Ellipsis]
    if kind in (Union, UnionType):
        return {"anyOf": inner}
    if is_object(kind):
        return of_class(kind)
    return _of_class(kind, inner) if isinstance(kind, type) else {}


def _of_class(kind: type[Any], inner: list[Schema]) -> Schema:
    """The schema of a class of the standard library, with those of its type arguments."""
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if issubclass(kind, PurePath):
        return {"type": "string"}
    if issubclass(kind, Mapping):
        return {"type": "object", **({"additionalProperties": inner[-1]} if inner else {})}
    if not issubclass(kind, Collection):
        return {}
    is_one = len(set(map(str, inner))) == 1
    return {"type": "array", **({"items": inner[0]} if is_one else {})}


def is_object(hint: Any) -> bool:
    """Whether a type is a class with fields."""
    return is_typed_dict(hint) or attrs.has(hint) or hasattr(hint, "_fields")


def type_text(hint: Any) -> str:
    """A type in words.

    >>> type_text(int | None), type_text(list[str])
    ('integer or null', 'list of string')
    >>> type_text(dict[str, int]), type_text(Literal["a", "b"])
    ('object of integer by name', '"a" or "b"')
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _NAMES:
        return _NAMES[hint]
    if origin is Literal:
        return " or ".join(f'"{each}"' for each in arguments)
    if origin in (Union, UnionType):
        return " or ".join(map(type_text, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"object of {type_text(arguments[1])} by name"
    if arguments:
        return f"list of {type_text(arguments[0])}"
    return "any" if hint is Any else str(hint.__name__)


def inner_kinds(hint: Any) -> list[type]:
    """The classes in the type of a field."""
    if is_object(hint):
        return [hint]
    return [kind for each in get_args(hint) for kind in inner_kinds(each) if hint is not Any]
