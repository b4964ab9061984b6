"""A callback of a put cannot close the store that it is of, and does no harm by trying to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from queue import Queue
from threading import Event

import pytest

from core.tests.store.support import open_small
from lakelog import Message, Store
from lakelog.errors import StoreError
from lakelog_testing.crash.opener import owned_by


def refused(owner: Store, store: Store) -> str:
    """What a callback hears that closes ``store``; nothing is appended before it is there."""
    heard, there = Queue[str](), Event()
    log = owned_by(owner).log
    append = log._append
    log._append = lambda batch: (there.wait(20), append(batch))[1]  # type: ignore[method-assign]  # a slow disk

    def close(_: object) -> None:
        try:
            store.close()
        except StoreError as error:
            heard.put(str(error))

    store.put_async(Message("t", b"x")).add_done_callback(close)
    there.set()
    return heard.get(timeout=20)


@pytest.mark.parametrize("flush", ["none", "inline"])
@pytest.mark.parametrize("attached", [False, True])
def test_it_is_refused_and_the_store_goes_on(tmp_path: Path, flush: str, attached: bool) -> None:
    with (
        open_small(tmp_path, flush=flush) as owner,
        open_small(tmp_path) if attached else nullcontext(owner) as store,
    ):
        assert "in a callback of a put" in refused(owner, store)
        assert store.put(Message("t", b"y")).size > 0
    with open_small(tmp_path) as again:
        assert again.recovery is not None
        assert again.recovery.clean


def test_what_a_callback_hands_on_may_close_it(tmp_path: Path) -> None:
    async def run(close: Callable[[], None]) -> None:
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            close()
            closed.set()

        future = store.put_async(Message("t", b"x"))
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(end))
        await asyncio.wait_for(closed.wait(), 20)

    store = open_small(tmp_path)
    asyncio.run(run(store.close))
    with pytest.raises(StoreError):
        store.get("t", 0, 0, 1)
