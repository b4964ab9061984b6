"""How each store is opened after it was broken, read to its end, and asked whether it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Where damage is told that does not end the reading."""


class Reader(Protocol):
    """A store that was broken; opening recovers it."""

    def __init__(self, directory: Path, options: Mapping[str, Any], report: Report) -> None:
        """Open it."""

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield queue and body, in the order of each queue; the body ends the bytes."""

    def check(self) -> None:
        """Let the store check itself, where it can."""


def module(name: str) -> Any:
    """Import the module of a store that has its `Reader`."""
    return import_module(f"tests.bench.comparison.reading.{name}_reader")
