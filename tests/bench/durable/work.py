"""How a store is loaded, and what it is opened with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from tests.bench.model import Column, Sample

BODY_BYTES: Final = 1024

COLUMNS: Final = (
    Column("rows_s", "messages/s"),
    Column("p50_us", "p50 us", ",.0f"),
    Column("p99_us", "p99 us", ",.0f"),
)
"""The figures of `child.run`; the times are those of one call, or of one future."""

Options: TypeAlias = Mapping[str, Any]
"""What the driver of a store understands; JSON."""


@dataclass(frozen=True)
class Work:
    """Calls, one after another in each of some threads, until the time is over.

    :ivar seconds: how long is measured; a quarter of it warms up before
    :ivar threads: how many call at the same time
    :ivar in_flight: so many futures in one thread instead of calls that wait
    :ivar batch_size: messages of each call
    :ivar columns: whether a batch is handed over as columns
    :ivar options: for the driver
    """

    seconds: float
    threads: int = 1
    in_flight: int = 0
    batch_size: int = 1
    columns: bool = False
    body_bytes: int = BODY_BYTES
    options: Options = field(default_factory=dict)


class Driver(Protocol):
    """A store whose calls return when the message is as durable as the options say."""

    def open(self, directory: Any, options: Options) -> None:
        """Create the store in an empty directory."""

    def put(self, body: bytes) -> object:
        """Store one message; called from several threads."""

    def put_batch(self, size: int, body: bytes) -> object:
        """Store so many at once; called from several threads."""

    def close(self) -> None:
        """Stop; not part of what is measured."""


def figures(calls: int, batch_size: int, seconds: float, took_ns: list[int]) -> Sample:
    """Turn what was measured into a sample; `took_ns` is sorted here."""
    took_ns.sort()
    return {
        "rows_s": calls * batch_size / seconds,
        "mb_s": calls * batch_size * BODY_BYTES / seconds / 1e6,
        "p50_us": took_ns[len(took_ns) // 2] / 1e3,
        "p99_us": took_ns[len(took_ns) * 99 // 100] / 1e3,
        "max_us": took_ns[-1] / 1e3,
    }
