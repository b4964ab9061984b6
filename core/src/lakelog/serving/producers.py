"""Who puts through this owner from other processes, and how fast."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from lakelog.attach.attached import Attached


@attrs.define
class Producers:
    """Looks again and again; remembers what it saw last."""

    _former: dict[str, tuple[int, int]] = attrs.field(factory=dict, init=False)
    _time: float = attrs.field(factory=time.monotonic, init=False)

    def rows(self, attached: Iterable[Attached]) -> list[dict[str, Any]]:
        """One row each, with its messages and bytes in a second since the last look."""
        now, listed = time.monotonic(), list(attached)
        passed, former = max(now - self._time, 1e-9), self._former
        self._time = now
        self._former = {each.producer: (each.messages, each.bytes) for each in listed}
        return [_row(each, *former.get(each.producer, (0, 0)), passed) for each in listed]


def _row(now: Attached, messages: int, size: int, passed: float) -> dict[str, Any]:
    return {
        "pid": now.pid,
        "producer": now.producer,
        "attached_ms": now.since_ms,
        "batches": now.entries,
        "messages": now.messages,
        "bytes": now.bytes,
        "messages_per_s": round((now.messages - messages) / passed, 1),
        "bytes_per_s": round((now.bytes - size) / passed, 1),
        "ring_bytes": now.ring_bytes,
        "ring_used_bytes": now.ring_used_bytes,
    }
