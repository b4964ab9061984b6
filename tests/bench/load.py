"""The number and size of messages to put, and the way of putting."""

from __future__ import annotations

from dataclasses import dataclass

_BYTES = 256 << 20
_MOST_MESSAGES = 200_000
_QUICK = 8


@dataclass(frozen=True)
class Load:
    """A number of messages of one size, in batches, or one by one from some threads."""

    body_bytes: int
    count: int
    threads: int = 1
    batch_size: int = 0

    @property
    def granule(self) -> int:
        """The count is rounded down to a multiple of this."""
        return self.batch_size or self.threads


def count_for(body_bytes: int, *, quick: bool) -> int:
    """Return the number of messages for a run of about a second within one log file."""
    count = min(_MOST_MESSAGES, _BYTES // body_bytes)
    return count // _QUICK if quick else count


def size_text(size_bytes: int) -> str:
    """Return a body size as text with a unit."""
    return f"{size_bytes >> 10} KiB" if size_bytes >= 1 << 10 else f"{size_bytes} B"
