"""The methods of a peer. Message numbers continue from call to call, so that keys are unique."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Peer(Protocol):
    """A store in this process; `put` may be called from several threads."""

    def open(self, directory: Path) -> None:
        """Create the store in an empty directory."""

    def put(self, count: int, body: bytes) -> None:
        """Store messages one by one."""

    def put_batch(self, count: int, batch_size: int, body: bytes) -> None:
        """Store about ``count`` messages, in batches of exactly ``batch_size``."""

    def close(self) -> None:
        """Close the store; not measured."""
