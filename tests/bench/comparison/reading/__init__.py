"""Opens each store after a fault, reads it to its end, and runs its own check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Called with a report of damage that does not end the reading."""


class Reader(Protocol):
    """An open store after a fault; opening recovers it."""

    def __init__(self, directory: Path, options: Mapping[str, Any], report: Report) -> None:
        """Open the store."""

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield queue and body of each message, in queue order; properties may precede the body."""

    def check(self) -> None:
        """Run the store's own check, if it has one; raises its error."""


def module(name: str) -> Any:
    """Import the module of a store that has its `Reader`."""
    return import_module(f"tests.bench.comparison.reading.{name}_reader")
