"""What a peer can do. Message numbers go on from call to call, so that keys are unique."""

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
        """Store about so many messages, in batches of exactly that size."""

    def close(self) -> None:
        """Stop; not part of what is measured."""
