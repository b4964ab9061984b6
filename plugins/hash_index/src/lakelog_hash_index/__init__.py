"""A key index for lakelog: RocketMQ's hash-slot index files, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog_hash_index.checking import verify

__all__ = ["verify"]


def __getattr__(name: str) -> Any:
    """Import the check on first use."""
    if name != "verify":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakelog_hash_index.checking import verify

    return verify
