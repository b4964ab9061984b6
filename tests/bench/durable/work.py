"""The load on a store, and the options of its open."""

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
"""Options of the driver of a store; JSON."""


@dataclass(frozen=True)
class Work:
    """Calls, one after another in each thread, until the time is over.

    :ivar seconds: duration of the measurement; a warm-up of a quarter of it comes before
    :ivar threads: number of threads
    :ivar in_flight: number of pending futures in one thread, instead of waiting calls
    :ivar batch_size: messages per call
    :ivar columns: whether a batch is passed as columns
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
        """Store ``size`` messages in one call; called from several threads."""

    def close(self) -> None:
        """Close the store; not measured."""


def figures(calls: int, batch_size: int, seconds: float, took_ns: list[int]) -> Sample:
    """Return a sample from the measured times; sorts ``took_ns``."""
    took_ns.sort()
    return {
        "rows_s": calls * batch_size / seconds,
        "mb_s": calls * batch_size * BODY_BYTES / seconds / 1e6,
        "p50_us": took_ns[len(took_ns) // 2] / 1e3,
        "p99_us": took_ns[len(took_ns) * 99 // 100] / 1e3,
        "max_us": took_ns[-1] / 1e3,
    }
