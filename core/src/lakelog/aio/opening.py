"""Opens a store for an event loop: to recover a log, or to wait for an owner, may take a while."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from functools import partial
from types import TracebackType
from typing import Any

from lakelog.aio.store import AsyncStore
from lakelog.runtime.threads import in_thread, soon_done
from lakelog.store.open import open_store
from lakelog.store.roles.choosing import known_mode
from lakelog.store.store import Store


def open_async(path: str | os.PathLike[str], **arguments: Any) -> Opened:
    """Open the store in ``path``; ``async with`` gives it, and closes it at the end.

    ``await`` gives it, too, and leaves it to you to ``await store.close()``.

    :param arguments: those of :func:`lakelog.open`, which says what is raised
    """
    if "mode" in arguments:  # here, where a warning finds who has given it
        arguments["mode"] = known_mode(arguments["mode"])
    return Opened(partial(open_store, path, **arguments))


class Opened:
    """A store that is about to be opened: for ``async with``, or to be awaited once."""

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
            opening.add_done_callback(_close)  # nobody else would
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
    """Close in a thread what was opened for somebody who does not wait any more."""
    if not opening.cancelled() and opening.exception() is None:
        close = opening.result().close
        soon_done(partial(asyncio.get_running_loop().run_in_executor, None), "asyncio", close)
