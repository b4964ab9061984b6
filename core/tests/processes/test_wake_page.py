"""Readers in other processes are woken; whatever becomes of the page, they go on."""

from __future__ import annotations

import asyncio
import platform
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.store.support import fill, open_small, read_small
from core.tests.store.workers import an_owner
from lakelog import Message, Store
from lakelog.errors import StoreClosed
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.processes import locks, membership
from lakelog.processes import positions as wake
from lakelog.processes.positions import (
    FLAG,
    MAGIC,
    SEQUENCE,
    WAKE_BYTES,
    PageWaiter,
    WakePage,
    wake_path,
)
from lakelog.store import joining as flushwait
from tests.support.waiting import until

FILES = RealFileSystem()
HAS_FUTEX = platform.machine() in locks._NUMBERS
LONG_S = 30.0
woken = pytest.mark.skipif(not HAS_FUTEX, reason="no number of the system call is known here")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not woken sleeps so long that a test fails."""
    monkeypatch.setattr(wake, "LONGEST_SLEEP_S", LONG_S)


def page_of(path: Path) -> WakePage:
    page = WakePage.open(FILES, path)
    assert page is not None
    return page


def waits(path: Path) -> None:
    """Until somebody has said that he waits."""
    page = page_of(path)
    until(lambda: page.asked[FLAG])
    time.sleep(0.05)  # to fall asleep


@pytest.mark.both_ways
@woken
@pytest.mark.usefixtures("patient")
def test_a_put_wakes_a_reader_in_another_process(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, read_small(tmp_path) as reader:
        owner.ask("put", "m", 1)
        assert len(reader.get("t", 0, 0, 9).messages) == 1
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(reader.get, "t", 0, 1, 1, wait_ms=20_000)
            waits(tmp_path)
            owner.ask("put", "m", 1)
            assert waiting.result(5).messages


@woken
@pytest.mark.usefixtures("patient")
def test_an_event_loop_is_woken_too(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, read_small(tmp_path) as reader:
        owner.ask("put", "m", 1)

        async def follow() -> None:
            waiting = asyncio.create_task(reader.get_async("t", 0, 1, 1, wait_ms=20_000))
            await asyncio.to_thread(waits, tmp_path)
            await asyncio.to_thread(owner.ask, "put", "m", 1)
            assert (await asyncio.wait_for(waiting, 5)).messages

        asyncio.run(follow())


@woken
def test_who_sleeps_is_woken_by_a_number_that_another_thread_moves(tmp_path: Path) -> None:
    (tmp_path / OWN_DIR).mkdir()
    page, other = WakePage.make(FILES, tmp_path), page_of(tmp_path)
    for seen in (0, 0xFFFF_FFFF):
        page.asked[SEQUENCE] = seen
        other.ask()
        waker = threading.Timer(0.1, page.wake if not seen else page.wake_all)
        waker.start()
        assert other.sleep(seen, 20)
        waker.join()
        assert other.asked[SEQUENCE] == (seen + 1) & 0xFFFF_FFFF
        assert other.sleep(seen, 60)  # it has moved by now


def can_follow(store: Store, reader: Store, at: int) -> None:
    putting = threading.Timer(0.1, lambda: fill(store, 1))
    putting.start()
    assert reader.get("t", 0, at, 1, wait_ms=20_000).messages
    putting.join()


def test_a_page_that_is_gone_or_damaged_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "TURN_S", 0.05)
    with open_small(tmp_path) as store, read_small(tmp_path) as reader:
        fill(store, 1)
        can_follow(store, reader, 1)
        wake_path(tmp_path).unlink()
        can_follow(store, reader, 2)
        until(lambda: WakePage.open(FILES, tmp_path))
        can_follow(store, reader, 3)
        with wake_path(tmp_path).open("r+b") as file:
            file.write(b"\xff" * WAKE_BYTES)
        can_follow(store, reader, 4)
        until(lambda: WakePage.open(FILES, tmp_path))
        other = tmp_path / "other"
        other.write_bytes(b"short")
        other.replace(wake_path(tmp_path))
        can_follow(store, reader, 5)
        until(lambda: page_of(tmp_path).is_at(tmp_path))
        can_follow(store, reader, 6)
        assert page_of(tmp_path)._magic[0] == MAGIC


class _NotOurs(RealFileSystem):
    """Others may write to the page."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if write and path.name == wake.WAKE_FILE:
            raise PermissionError(13, "not permitted", str(path))
        return super().open(path, write=write, create=create)


def test_who_may_not_write_polls(tmp_path: Path) -> None:
    with open_small(tmp_path) as store, read_small(tmp_path, files=_NotOurs()) as reader:
        fill(store, 1)
        can_follow(store, reader, 1)
        assert PageWaiter(_NotOurs(), tmp_path).ask() is None
    with open_small(tmp_path / "no page", files=_NotOurs()) as store:
        fill(store, 3)
        with read_small(tmp_path / "no page") as reader:
            can_follow(store, reader, 3)


def test_without_the_system_call_all_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_NUMBERS", {})
    with open_small(tmp_path) as store, read_small(tmp_path) as reader:
        fill(store, 1)
        can_follow(store, reader, 1)
        page_of(tmp_path).ask()
        fill(store, 1)
        until(lambda: reader.get("t", 0, 2, 1).messages)


# --- waiting for what becomes durable: wait_flushed of a reader ---


SIZES: dict[str, Any] = {
    "segment_size_bytes": "64KiB",
    "preallocate": False,
    "attach": {"listen": False},
}
FOR_EVER_MS = 600_000


def owning(path: Path, flush: str, **more: Any) -> lakelog.Store:
    return lakelog.open(path, flush=flush, **SIZES, **more)


@pytest.fixture(params=["group-commit", "timed"])
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lakelog.Store]:
    timed = {"flush_thorough_interval_ms": 100}  # else a little may wait for 10 s
    with owning(tmp_path / "s", request.param, timed=timed) as store:
        store.put(Message("t", b"first"))
        store.flush()
        yield store


@pytest.fixture
def reader(owner: lakelog.Store) -> Iterator[lakelog.Store]:
    with lakelog.open(owner.path, mode="read") as store:
        yield store


@pytest.mark.both_ways
def test_the_owner_wakes_who_waits(
    owner: lakelog.Store, reader: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushwait, "LONGEST_SLEEP_S", 60.0)  # nothing else would wake it
    behind = owner.flushed_offset + 1
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.wait_flushed, behind, FOR_EVER_MS)
        time.sleep(0.1)
        owner.put(Message("t", b"second"))
        assert waiting.result(20)
    assert reader.flushed_offset >= behind


def test_whoever_need_not_or_cannot_wait(owner: lakelog.Store, reader: lakelog.Store) -> None:
    assert reader.wait_flushed(owner.flushed_offset, 0)
    assert not reader.wait_flushed(owner.flushed_offset + 1, 50)
    with pytest.raises(ValueError, match="owns"):
        owner.wait_flushed(0)
    reader.close()
    with pytest.raises(StoreClosed):
        reader.wait_flushed(owner.flushed_offset)


def test_nobody_tells_of_a_store_that_is_closed(tmp_path: Path) -> None:
    owning(tmp_path / "s", "none").close()
    with lakelog.open(tmp_path / "s", mode="read") as reader:
        assert not reader.wait_flushed(1 << 40, FOR_EVER_MS)
