"""Stores that hold the same messages, one small file each; to add one, name its file here.

A module here has a class `Peer` that follows `protocol.Peer`, and its SETTINGS for the report.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.bench.model import LAKELOG, CannotRunError

_OTHERS = ("lmdb", "rocksdb", "sqlite", "raw")
NAMES = (LAKELOG, "lakelog_producer", "lakelog_plain", *_OTHERS)
BATCH_NAMES = (LAKELOG, "lakelog_columns", "lakelog_plain", *_OTHERS)
"""Who takes part where batches are put."""


def module(name: str) -> Any:
    """Import the peer's module; CannotRunError where its package is missing or incomplete."""
    try:
        return import_module(f"tests.bench.peers.{name}_peer")
    except ImportError as missing:
        raise CannotRunError(str(missing)) from missing
