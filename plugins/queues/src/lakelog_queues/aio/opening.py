"""Opens a store in a thread: recovering a log, or waiting for an owner, may take long."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from functools import partial
from types import TracebackType
from typing import Any

from lakelog import Store
from lakelog.runtime.threads import in_thread, soon_done
from lakelog.store.open import open_store
from lakelog.store.roles.choosing import known_mode
from lakelog_queues.aio.store import AsyncStore


def open_async(path: str | os.PathLike[str], **arguments: Any) -> AsyncOpening:
    """Open the store in ``path``; use ``async with``, which closes it at the end.

    With ``await`` instead, the caller must ``await store.close()``.

    :param arguments: those of :func:`lakelog.open`, which also documents the errors
    """
    if "mode" in arguments:  # here, so that the warning names the caller's line
        arguments["mode"] = known_mode(arguments["mode"])
    return AsyncOpening(partial(open_store, path, **arguments))


class AsyncOpening:
    """A store to be opened: use it in ``async with``, or await it once."""

    def __init__(self, make: partial[Store]) -> None:
        self._make = make
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._open().__await__()

    async def _open(self) -> AsyncStore:
        opening = asyncio.ensure_future(in_thread(self._make))
        try:
            return AsyncStore(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close)  # the caller cannot close it any more
            raise

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._store is not None:
            await self._store.close()


def _close(opening: asyncio.Future[Store]) -> None:
    """Close, in a thread, a store whose caller was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        close = opening.result().close
        soon_done(partial(asyncio.get_running_loop().run_in_executor, None), "asyncio", close)
