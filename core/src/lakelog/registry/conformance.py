"""Checks an object against its Protocol, once, by the signatures of its methods.

``isinstance`` with a Protocol only asks whether names are there; this also asks whether each method
can be called as the Protocol says, by position and by name, and answers at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints


def check_object(obj: object, protocol: type[Any]) -> str | None:
    """Say what keeps ``obj`` from being a ``protocol``; ``None`` if nothing does."""
    if obj is None:
        return f"it is None; a {protocol.__name__} is wanted"
    problems = (*_attributes(obj, protocol), *_methods(obj, protocol))
    return "; ".join(problems) or None


def _attributes(obj: object, protocol: type[Any]) -> Iterator[str]:
    for name, kind in get_type_hints(protocol).items():
        if not hasattr(obj, name):
            yield f"it lacks the attribute {name}: {kind.__name__}"
        elif isinstance(kind, type) and not isinstance(getattr(obj, name), kind):
            yield f"its attribute {name} is {getattr(obj, name)!r}, not a {kind.__name__}"


def _methods(obj: object, protocol: type[Any]) -> Iterator[str]:
    for name, declared in inspect.getmembers(protocol, inspect.isfunction):
        if not name.startswith("_"):
            problem = _method(getattr(obj, name, None), declared)
            if problem:
                yield f"{problem}; expected {_expected(declared)}"


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
        return True  # built-in code need not tell
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
    """The declaration as a caller sees it, without ``self``."""
    signature = inspect.signature(declared)
    parameters = list(signature.parameters.values())[1:]
    return f"{declared.__name__}{signature.replace(parameters=parameters)}"
