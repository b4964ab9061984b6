"""Inspects type hints of settings classes."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lakelog.errors import SettingsError


def hints_of(cls: type[Any]) -> dict[str, Any]:
    """The types of a settings class's fields, by field name."""
    try:
        return get_type_hints(cls)
    except NameError as error:
        what = f"the types of its settings cannot be resolved ({error})"
        hint = "import them at run time, not only for type checkers"
        raise SettingsError(f"{cls.__module__}.{cls.__qualname__}: {what}; {hint}") from error


def without_none(hint: Any) -> tuple[Any, bool]:
    """A hint without its ``None``, and whether it had one."""
    if not is_union(hint):
        return hint, False
    rest = tuple(arg for arg in get_args(hint) if arg is not types.NoneType)
    bare = rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007  # the types are known only at run time
    return bare, len(rest) < len(get_args(hint))


def is_union(hint: Any) -> bool:
    """Whether ``hint`` is ``A | B``."""
    return get_origin(hint) in (Union, types.UnionType)


def items_of(hint: Any) -> bool:
    """Whether values of ``hint`` are lists of some kind, not strings or tables."""
    kind = get_origin(hint) or hint
    if not isinstance(kind, type) or issubclass(kind, str | bytes | Mapping):
        return False
    return issubclass(kind, Collection)


def fits(value: object, hint: Any) -> bool:
    """Whether ``value`` already has the type ``hint``, so that no conversion is needed."""
    if hint is Any or hint is object:
        return True
    if is_union(hint):
        return any(fits(value, arg) for arg in get_args(hint))
    if get_origin(hint) is tuple:
        return _fits_tuple(value, get_args(hint))
    if get_origin(hint) is Literal:
        return any(value == arg and type(value) is type(arg) for arg in get_args(hint))
    return _fits_class(value, hint)


def _fits_class(value: object, hint: Any) -> bool:
    """Match the exact type: ``True`` is no int. Only paths and settings may be subclasses."""
    if not isinstance(hint, type):
        return False
    plain = (bool, int, float, str, bytes, list, tuple, dict, set, frozenset)
    return type(value) is hint or (isinstance(value, hint) and not isinstance(value, plain))


def _fits_tuple(value: object, args: tuple[Any, ...]) -> bool:
    if not isinstance(value, tuple) or len(args) != 2 or args[1] is not Ellipsis:
        return False
    return all(fits(item, args[0]) for item in value)
