"""Waiting, beside an owner, for what becomes durable: ``Store.wait_flushed`` of a reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import Message
from lakelog.errors import StoreClosed
from lakelog.log.reading import flush_wait as flushwait

SIZES: dict[str, Any] = {
    "segment_size_bytes": "64KiB",
    "preallocate": False,
    "attach": {"listen": False},
}
PATIENCE_MS = 20_000


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


def test_what_is_durable_is_not_waited_for(owner: lakelog.Store, reader: lakelog.Store) -> None:
    assert reader.wait_flushed(owner.flushed_offset, 0)


def test_the_time_is_over(owner: lakelog.Store, reader: lakelog.Store) -> None:
    begun = time.monotonic()
    assert not reader.wait_flushed(owner.flushed_offset + 1, 50)
    assert time.monotonic() - begun >= 0.05


def test_the_owner_wakes_who_waits(
    owner: lakelog.Store, reader: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushwait, "LONGEST_SLEEP_S", 60.0)  # nothing else would wake it
    behind = owner.flushed_offset + 1
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.wait_flushed, behind, PATIENCE_MS)
        time.sleep(0.1)
        begun = time.monotonic()
        owner.put(Message("t", b"second"))
        assert waiting.result()
    assert time.monotonic() - begun < PATIENCE_MS / 2000
    assert reader.flushed_offset >= behind


def test_nobody_tells_of_a_store_that_is_closed(tmp_path: Path) -> None:
    owning(tmp_path / "s", "none").close()
    with lakelog.open(tmp_path / "s", mode="read") as reader:
        begun = time.monotonic()
        assert not reader.wait_flushed(1 << 40, PATIENCE_MS)
        assert time.monotonic() - begun < PATIENCE_MS / 2000


def test_who_waits_hears_that_the_owner_closes(tmp_path: Path) -> None:
    owner = owning(tmp_path / "s", "none")
    with (
        lakelog.open(tmp_path / "s", mode="read") as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(reader.wait_flushed, 1 << 40, PATIENCE_MS)
        time.sleep(0.05)
        begun = time.monotonic()
        owner.close()
        assert not waiting.result()
        assert time.monotonic() - begun < PATIENCE_MS / 2000


def test_an_owner_does_not_wait_for_itself(owner: lakelog.Store) -> None:
    with pytest.raises(ValueError, match="owns"):
        owner.wait_flushed(0)


def test_a_closed_reader_refuses(owner: lakelog.Store, reader: lakelog.Store) -> None:
    reader.close()
    with pytest.raises(StoreClosed):
        reader.wait_flushed(owner.flushed_offset)
