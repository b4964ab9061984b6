"""Rejects hook functions that pluggy would silently ignore or call incorrectly.

pluggy ignores functions without a marker, and leaves arguments with a default unset. Each is an
error here, as are misspelt hooks and arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from lakelog.errors import BadHook
from lakelog.hookspecs import PROJECT, Hooks
from lakelog.registry.words import suggestion

PREFIX: Final = f"{PROJECT}_"
_MARKER: Final = f"{PROJECT}_impl"

Complaint = Callable[[str, type[BadHook]], Exception]
"""Builds the error for one plugin."""


def check_hooks(plugin: object, complain: Complaint) -> None:
    """Raise for the first invalid hook function of ``plugin``, or if it has none."""
    specs = known_hooks()
    marked = 0
    for name, function, options in _candidates(plugin):
        problem = _problem(name, function, options, specs)
        if problem:
            raise complain(problem, BadHook)
        marked += 1
    if not marked:
        raise complain(
            "it has no hook at all: mark its functions with @lakelog.hookspecs.hookimpl, and let "
            "the entry point name the module or object that has them",
            BadHook,
        )


@functools.cache
def known_hooks() -> dict[str, list[str]]:
    """The names of all hooks, with those of their arguments."""
    return {
        name: list(inspect.signature(spec).parameters)[1:]
        for name, spec in vars(Hooks).items()
        if name.startswith(PREFIX)
    }


def _candidates(plugin: object) -> Iterator[tuple[str, Any, Mapping[str, Any] | None]]:
    for name in dir(plugin):
        raw = inspect.getattr_static(plugin, name, None)
        options = _options(raw)
        if options is not None or (name.startswith(PREFIX) and _looks_like_a_hook(raw)):
            yield name, raw, options


def _options(raw: object) -> Mapping[str, Any] | None:
    """The marker's options on a function, above or below ``staticmethod`` and the like."""
    for holder in (raw, getattr(raw, "__func__", None)):
        options = getattr(holder, _MARKER, None)
        if isinstance(options, dict):
            return options
    return None


def _looks_like_a_hook(raw: object) -> bool:
    if isinstance(raw, ModuleType | type):
        return False
    return callable(raw) or isinstance(raw, property | staticmethod | classmethod)


def _problem(
    name: str, raw: Any, options: Mapping[str, Any] | None, specs: Mapping[str, list[str]]
) -> str | None:
    if options is None:
        return f"{name} lacks @hookimpl, so that it would never be called; add it, or rename it"
    if options.get("wrapper") or options.get("hookwrapper"):
        return f"{name} is a hook wrapper, which lakelog never calls; make it a plain hook"
    hook = options.get("specname") or name
    if hook not in specs:
        return None if options.get("optionalhook") else _unknown(hook, specs)
    return _bad_arguments(hook, getattr(raw, "__func__", raw), specs[hook])


def _unknown(hook: str, specs: Mapping[str, list[str]]) -> str:
    return f"there is no hook {hook}{suggestion(hook, specs, 'the hooks are')}"


def _bad_arguments(hook: str, function: Callable[..., object], allowed: list[str]) -> str | None:
    expected = f"{hook}({', '.join(allowed)}); leave arguments out, but do not rename them"
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        if position == 0 and parameter.name in ("self", "cls"):
            continue
        if parameter.name not in allowed:
            return f"{hook} has no argument {parameter}: it is {expected}"
        if parameter.default is not parameter.empty:
            return f"{hook} never gets {parameter.name}, as it has a default; remove that"
    return None
