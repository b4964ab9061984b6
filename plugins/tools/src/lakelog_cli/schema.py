"""A JSON Schema (draft 2020-12) of all settings in TOML form, for editors and checks.

States the output of commands with ``--json``: a class for each kind of object, and its schema.

A class is a ``TypedDict`` or an attrs class. Its ``:ivar`` lines describe the fields.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from typing import is_typeddict as is_typed_dict

import attrs

from lakelog.settings.catalog import CORE, OWN_SECTIONS, default_of, keys_of, required
from lakelog.settings.conversion import hints_of, is_union, items_of, pattern_for, without_none
from lakelog_cli.output import plain_value

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


_TYPE_NAMES: Final = {bool: "boolean", int: "integer", float: "number", str: "string"} | {
    NoneType: "null"
}
_ATTRIBUTE: Final = "printed"
Function = TypeVar("Function", bound=Callable[..., None])


@attrs.frozen
class Printed:
    """The output of a command with ``--json``.

    :ivar kinds: the classes of its objects
    :ivar is_document: whether it is one indented object, and not one object a line
    :ivar is_always: whether it is JSON without the option, too
    """

    kinds: tuple[type, ...]
    is_document: bool
    is_always: bool


def prints(
    *kinds: type, is_document: bool = False, is_always: bool = False
) -> Callable[[Function], Function]:
    """Declare the output of a command; see :class:`Printed`. Without classes it is any object."""

    def marked(function: Function) -> Function:
        setattr(function, _ATTRIBUTE, Printed(kinds, is_document, is_always))
        return function

    return marked


def printed_by(callback: object) -> Printed | None:
    """The declared output of a command's function; ``None`` if none was declared."""
    found = getattr(callback, _ATTRIBUTE, None)
    return found if isinstance(found, Printed) else None


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


def type_schema(hint: Any) -> Schema:
    """The schema of the type of a field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _TYPE_NAMES:
        return {"type": _TYPE_NAMES[hint]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [type_schema(each) for each in arguments]}
    if arguments:
        items = type_schema(arguments[-1 if is_by_name(origin) else 0])
        if is_by_name(origin):
            return {"type": "object", "additionalProperties": items}
        return {"type": "array", "items": items}
    return kind_schema(hint) if is_object(hint) else {}


def is_by_name(origin: Any) -> bool:
    """Whether a type has values by name, and not in order."""
    return isinstance(origin, type) and issubclass(origin, Mapping)


def is_object(hint: Any) -> bool:
    """Whether a type is a class with fields."""
    return is_typed_dict(hint) or attrs.has(hint)


def type_text(hint: Any) -> str:
    """A type in words.

    >>> type_text(int | None), type_text(list[str])
    ('integer or null', 'list of string')
    >>> type_text(dict[str, int]), type_text(Literal["a", "b"])
    ('object of integer by name', '"a" or "b"')
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _TYPE_NAMES:
        return _TYPE_NAMES[hint]
    if origin is Literal:
        return " or ".join(f'"{each}"' for each in arguments)
    if origin in (Union, UnionType):
        return " or ".join(map(type_text, arguments))
    if is_by_name(origin):
        return f"object of {type_text(arguments[1])} by name"
    if arguments:
        return f"list of {type_text(arguments[0])}"
    return "any" if hint is Any else str(hint.__name__)


def inner_kinds(hint: Any) -> list[type]:
    """The classes in the type of a field."""
    if is_object(hint):
        return [hint]
    return [kind for each in get_args(hint) for kind in inner_kinds(each) if hint is not Any]
