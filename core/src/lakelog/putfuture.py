"""The future of an asynchronous put: for threads as for asyncio."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from concurrent.futures._base import PENDING
from typing import Any

from lakelog.gate import Gate
from lakelog.results import PutResult


class PutFuture(Future[PutResult]):
    """A :class:`concurrent.futures.Future` that can be awaited too."""

    def __init__(self) -> None:  # in place of the base's, for a condition variable that costs less
        self._condition = Gate()
        self._state = PENDING
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    def __await__(self) -> Generator[Any, None, PutResult]:
        """Wait in an event loop without blocking it."""
        import asyncio

        return asyncio.wrap_future(self).__await__()
