"""Stores for the same messages, one module each; to add a store, add the module's name here.

A module has a class `Peer` that implements `protocol.Peer`, and its SETTINGS for the report.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.bench.model import LAKELOG, CannotRunError

_OTHERS = ("lmdb", "rocksdb", "sqlite", "raw")
NAMES = (LAKELOG, "lakelog_producer", "lakelog_plain", *_OTHERS)
BATCH_NAMES = (LAKELOG, "lakelog_columns", "lakelog_plain", *_OTHERS)
"""The peers in contests of batches."""


def module(name: str) -> Any:
    """Import a peer's module; raises CannotRunError if its package is missing or incomplete."""
    try:
        return import_module(f"tests.bench.peers.{name}_peer")
    except ImportError as missing:
        raise CannotRunError(str(missing)) from missing
