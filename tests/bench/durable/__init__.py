"""Runs of the durability suites: each store in its own process, every message made durable.

`work` defines the load, `child` measures it, and each module `NAME_peer` drives one store.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.bench.model import CannotRunError


def module(name: str) -> Any:
    """Import the driver of a store; raises CannotRunError if its package is missing."""
    try:
        return import_module(f"tests.bench.durable.{name}_peer")
    except ImportError as missing:
        raise CannotRunError(str(missing)) from missing
