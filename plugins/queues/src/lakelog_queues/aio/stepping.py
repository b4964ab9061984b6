"""Runs a blocking iterator in threads, one batch of items at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

from lakelog.runtime.threads import in_thread

T = TypeVar("T")
BATCH: Final = 256
"""Number of items taken per call in a thread."""


async def stepped(make: Callable[[], Iterator[T]], batch: int = BATCH) -> AsyncIterator[T]:
    """Yield the items of the iterator from ``make``; it is created and advanced only in threads."""
    iterator = await in_thread(make)
    while found := await in_thread(_some, iterator, batch):
        for each in found:
            yield each


def _some(iterator: Iterator[T], count: int) -> list[T]:
    return list(islice(iterator, count))
