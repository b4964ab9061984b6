"""The future of an asynchronous put: for threads as for asyncio."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from lakelog.results import PutResult


class PutFuture(Future[PutResult]):
    """A :class:`concurrent.futures.Future` that can be awaited too."""

    def __await__(self) -> Generator[Any, None, PutResult]:
        """Wait in an event loop without blocking it."""
        import asyncio

        return asyncio.wrap_future(self).__await__()
