"""Turns errors of the operating system into ``ReadFailed``, for asynchronous read methods."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from lakelog.log.reading.failures import Reads, failing, reads

S = TypeVar("S", bound=Reads)
P = ParamSpec("P")
T = TypeVar("T")


def reads_async(
    verb: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """:func:`~lakelog.log.reading.failures.reads` for a coroutine."""

    @wraps(verb)
    async def guarded(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
        with failing(self._current.path):
            return await verb(self, *arguments, **named)

    return guarded


def iterates_async(
    verb: Callable[Concatenate[S, P], AsyncIterator[T]],
) -> Callable[Concatenate[S, P], AsyncIterator[T]]:
    """As :func:`~lakelog.log.reading.failures.iterates` for an asynchronous iterator."""

    @wraps(verb)
    def guarded(self: S, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        path = self._current.path
        return _steps_async(reads(verb)(self, *arguments, **named), path)

    return guarded


async def _steps_async(found: AsyncIterator[T], path: Path) -> AsyncIterator[T]:
    with failing(path):
        async with aclosing(cast(AsyncGenerator[T, None], found)):
            async for each in found:
                yield each
