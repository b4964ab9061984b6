"""How much is put, and in which way."""

from __future__ import annotations

from dataclasses import dataclass

_BYTES = 256 << 20
_MOST_MESSAGES = 200_000
_QUICK = 8


@dataclass(frozen=True)
class Load:
    """So many messages of that size; in batches, or one by one from some threads."""

    body_bytes: int
    count: int
    threads: int = 1
    batch_size: int = 0

    @property
    def granule(self) -> int:
        """What the count is rounded down to a multiple of."""
        return self.batch_size or self.threads


def count_for(body_bytes: int, *, quick: bool) -> int:
    """Choose so many messages that a run takes about a second, and stays in one log file."""
    count = min(_MOST_MESSAGES, _BYTES // body_bytes)
    return count // _QUICK if quick else count


def size_text(size_bytes: int) -> str:
    """Write a body size as people say it."""
    return f"{size_bytes >> 10} KiB" if size_bytes >= 1 << 10 else f"{size_bytes} B"
