"""Checks an object against its Protocol by the signatures of its methods.

``isinstance`` with a Protocol checks only names. This also checks that each method accepts the
Protocol's arguments, by position and by name, and is not async. Results for functions are cached,
because a process may open many stores.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any, get_type_hints


def check_object(obj: object, protocol: type[Any]) -> str | None:
    """Describe why ``obj`` does not implement ``protocol``; ``None`` if it does."""
    if obj is None:
        return f"it is None; expected a {protocol.__name__}"
    return "; ".join((*_attributes(obj, protocol), *_methods(obj, protocol))) or None


def _attributes(obj: object, protocol: type[Any]) -> Iterator[str]:
    known = _hints(protocol)  # type: ignore[arg-type]  # classes are hashable; mypy doubts it of type[Any]
    for name, kind in known.items():
        if not hasattr(obj, name):
            yield f"it lacks the attribute {name}: {kind.__name__}"
        elif isinstance(kind, type) and not isinstance(getattr(obj, name), kind):
            yield f"its attribute {name} is {getattr(obj, name)!r}, not a {kind.__name__}"


def _methods(obj: object, protocol: type[Any]) -> Iterator[str]:
    for name, declared in _declared(protocol):  # type: ignore[arg-type]  # as above
        method = getattr(obj, name, None)
        function = getattr(method, "__func__", None)
        if isinstance(method, BuiltinFunctionType):  # a method of a compiled object, or a function
            function = getattr(type(method.__self__), method.__name__, None)
        is_bound = isinstance(function, FunctionType | BuiltinFunctionType | MethodDescriptorType)
        # Results for plain methods, classes and functions of compiled modules are cached: all
        # objects of a class share them, and inspect parses signatures of compiled code each time.
        lasts = is_bound or isinstance(getattr(method, "__self__", method), type | ModuleType)
        fits = lasts and _fits(function if is_bound else method, declared, is_bound=is_bound)
        if not fits and (problem := _method(method, declared)):
            yield f"{problem}; expected {_expected(declared)}"


@lru_cache(maxsize=64)
def _hints(protocol: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(protocol)


@lru_cache(maxsize=64)
def _declared(protocol: type[Any]) -> tuple[tuple[str, Callable[..., Any]], ...]:
    found = inspect.getmembers(protocol, inspect.isfunction)
    return tuple(each for each in found if not each[0].startswith("_"))


@lru_cache(maxsize=512)
def _fits(function: Any, declared: Callable[..., Any], *, is_bound: bool) -> bool:
    return _method(MethodType(function, object()) if is_bound else function, declared) is None


def _method(method: object, declared: Callable[..., Any]) -> str | None:
    name = declared.__name__
    if method is None:
        return f"it lacks the method {name}"
    if not callable(method):
        return f"its {name} is no method, but {method!r}"
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return f"its method {name} is async, and would never run"
    return None if _can_be_called(method, declared) else f"its method {name} is {_shown(method)}"


def _can_be_called(method: Callable[..., Any], declared: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return True  # built-in code need not have a signature
    names = list(inspect.signature(declared).parameters)[1:]
    try:
        signature.bind(*names)
        signature.bind(**dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _shown(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)}"


def _expected(declared: Callable[..., Any]) -> str:
    """The declaration without ``self``."""
    signature = inspect.signature(declared)
    parameters = list(signature.parameters.values())[1:]
    return f"{declared.__name__}{signature.replace(parameters=parameters)}"
