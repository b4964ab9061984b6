"""Plugins for the tests of the registry: sound ones, and one for each mistake."""

# ruff: noqa: ARG005 - functions here have the arguments that are tested
from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks import Context, Factory, Flushable, Kind, NoSettings, Outcome
from lakelog.hooks.hookspecs import hookimpl
from lakelog.hooks.kinds import StoreSettings
from lakelog.registry import Registry, loading
from lakelog.results import PutStatus

CONTEXT = Context(Path("/nowhere"), StoreSettings(), RealFileSystem())


@attrs.frozen
class Pace:
    """Settings with a default, a factory and a key that must be given."""

    target: str
    every: int = 100
    labels: list[str] = attrs.field(factory=list)


class Flush:
    """A flush strategy that does nothing."""

    def start(self, log: Flushable) -> None:
        pass

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        return PutStatus.PUT_OK

    def close(self) -> None:
        pass


def factory(name: str = "sample", **changes: Any) -> Factory:
    given = {
        "kind": Kind.FLUSH_STRATEGY,
        "name": name,
        "settings": NoSettings,
        "make": lambda settings, context: Flush(),
    }
    return Factory(**{**given, **changes})


class Offering:
    """A plugin that offers flush strategies."""

    def __init__(self, *factories: Factory, name: str = "offering") -> None:
        self.__name__ = name
        self._factories = factories

    @hookimpl
    def lakelog_flush_strategies(self) -> Sequence[Factory]:
        return self._factories


def plugin(name: str = "sample", **functions: Any) -> Any:
    marked = {key: hookimpl(function) for key, function in functions.items()}
    return plain(name, **marked)


def plain(name: str = "sample", **functions: Any) -> Any:
    """A plugin of the given functions as they are."""
    made = type("Plain", (SimpleNamespace,), {"__hash__": object.__hash__, "__eq__": object.__eq__})
    return made(__name__=name, **functions)


def load(*plugins: object, off: str = "") -> Registry:
    """A registry of the built-ins and ``plugins``, without a scan; ``off`` disables some."""
    return Registry.load(plugins, {"LAKELOG_DISABLE_PLUGINS": off})


def hooks_of(registry: Registry, name: str) -> list[str]:
    manager = registry.plugged.manager
    return sorted(caller.name for caller in manager.get_hookcallers(manager.get_plugin(name)) or ())


def search(patch: pytest.MonkeyPatch, *folders: Path) -> None:
    rest = [entry for entry in sys.path if not [*Path(entry).glob("*.dist-info")]]
    patch.setattr(sys, "path", [*map(str, folders), *rest])
    patch.setattr(loading, "check_metadata", lambda: None)  # lakelog's own is not there
