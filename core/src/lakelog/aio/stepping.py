"""Runs what only blocking code can do in threads, a batch of steps at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

from lakelog.runtime.threads import in_thread

T = TypeVar("T")
BATCH: Final = 256
"""How many items are taken in one visit to a thread."""


async def stepped(make: Callable[[], Iterator[T]], batch: int = BATCH) -> AsyncIterator[T]:
    """What the iterator of ``make`` gives; it is made and advanced in threads only."""
    iterator = await in_thread(make)
    while found := await in_thread(_some, iterator, batch):
        for each in found:
            yield each


def _some(iterator: Iterator[T], count: int) -> list[T]:
    return list(islice(iterator, count))
