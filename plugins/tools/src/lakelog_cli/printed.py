"""States the output of commands with ``--json``: a class for each kind of object, and its schema.

A class is a ``TypedDict`` or an attrs class. Its ``:ivar`` lines describe the fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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

from lakelog_cli.schema import DRAFT, Schema, ivars_of

_NAMES: Final = {bool: "boolean", int: "integer", float: "number", str: "string"} | {
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
    if hint in _NAMES:
        return {"type": _NAMES[hint]}
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
    if hint in _NAMES:
        return _NAMES[hint]
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
