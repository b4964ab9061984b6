"""The words of an owner's shared page: what they are, when they move, and when there is no page."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from core.tests.store.faults import NthFails
from core.tests.store.support import SEGMENT, a_store, fill, open_small, read_small
from core.tests.store.test_page_view import page_of
from lakelog import Message
from lakelog.errors import StoreError, StoreFailed
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages.page_reader import PageReader
from lakelog.files.pages.page_view import PageView, process_start
from lakelog.files.pages.positions import Positions
from lakelog.files.pages.shared_page import (
    APPENDED,
    COMMITTED,
    DISPATCHED,
    DISPATCHER_PID,
    DISPATCHER_START,
    DURABLE,
    FLAGS,
    FLUSHED,
    FLUSHED_TIMESTAMP,
    HEARTBEAT,
    LAST_TIMESTAMP,
    MAGIC,
    MINIMUM,
    OWNER_PID,
    OWNER_START,
    PAGE_BYTES,
    PROOF,
    RECORDS,
    SEGMENT_BYTES,
    STATE,
    SYNCS,
    OwnerState,
    SharedPage,
    page_path,
)
from lakelog.files.shared.ownership import is_published
from tests.support.waiting import until

FILES = RealFileSystem()


def test_its_words(tmp_path: Path) -> None:
    with open_small(tmp_path, flush="inline") as store:
        last = fill(store, 5)[-1]
        store.wait_dispatched()
        assert is_published(FILES, tmp_path)
        content = page_path(tmp_path).read_bytes()
        assert len(content) == PAGE_BYTES
        words = memoryview(content).cast("Q")
        me = os.getpid()
        expected = {
            **dict.fromkeys((APPENDED, FLUSHED, DISPATCHED), last.end_offset),
            **dict.fromkeys((LAST_TIMESTAMP, FLUSHED_TIMESTAMP), last.store_timestamp_ms),
            OWNER_PID: me,
            OWNER_START: process_start(me),
            DISPATCHER_PID: me,
            DISPATCHER_START: process_start(me),
            0: MAGIC,
            MINIMUM: 0,
            STATE: OwnerState.OPEN,
            FLAGS: DURABLE,
            RECORDS: 5,
            SYNCS: 5,
            SEGMENT_BYTES: SEGMENT,
        }
        assert {at: words[at] for at in expected} == expected
        assert abs(words[HEARTBEAT] - time.time() * 1000) < 20_000
        abort, boot = os.stat(tmp_path / "abort"), Path("/proc/sys/kernel/random/boot_id")
        assert content[8:24] == uuid.UUID(boot.read_text().strip()).bytes
        assert (words[PROOF[2]], words[PROOF[3]]) == (abort.st_ino, abort.st_ctime_ns)
        assert not any(content[512:4096]), "nothing has failed"
        assert SharedPage.join(FILES, tmp_path).settings["segment_size_bytes"] == SEGMENT
    assert not is_published(FILES, tmp_path)
    closed = PageView.open(FILES, tmp_path)
    assert closed is not None
    assert closed.state is OwnerState.CLOSED


def test_its_heart_beats(tmp_path: Path) -> None:
    with open_small(tmp_path):
        page = page_of(tmp_path)
        first = page.words[HEARTBEAT]
        until(lambda: page.words[HEARTBEAT] != first)


def test_a_failed_store_says_so_and_is_still_read(tmp_path: Path) -> None:
    files = NthFails()
    store = open_small(tmp_path, files=files, flush="inline")
    end = fill(store, 5)[-1].end_offset
    files.arm(1, errno.EIO, lambda call, at: call == "sync" and at.name.isdigit())
    with pytest.raises(StoreFailed):
        store.put(Message("t", b""))
    assert page_of(tmp_path).state is OwnerState.FAILED
    with read_small(tmp_path) as reader:
        assert reader.flushed_offset == reader.max_offset == end
        assert len(list(reader.scan())) == 5
        assert "EIO" in (SharedPage.join(FILES, tmp_path).failure or "")
    with pytest.raises(StoreFailed):
        store.close()
    assert PageReader(FILES, tmp_path).page() is None


def test_an_opening_that_fails_leaves_it_as_it_was(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    before = page_path(tmp_path).read_bytes()
    files = NthFails()
    files.arm(1, errno.EIO, lambda call, at: call == "sync" and at.name == "checkpoint")
    with pytest.raises(StoreError):
        open_small(tmp_path, files=files)
    assert page_path(tmp_path).read_bytes() == before
    assert not is_published(FILES, tmp_path)


def test_no_room_for_a_page_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "lakelog").mkdir()
    files = NthFails()
    files.arm(1, errno.ENOSPC, lambda call, at: call == "allocate" and at.name == "shared")
    with pytest.raises(OSError, match="ENOSPC"):
        SharedPage.make(files, tmp_path)
    assert not page_path(tmp_path).exists()
    assert SharedPage.make(files, tmp_path).words[STATE] == OwnerState.OPENING


def test_who_looked_just_before_the_owner_changed_sees_no_empty_log(tmp_path: Path) -> None:
    """A reader that has seen the state, and is held up until the next owner makes its page."""
    a_store(tmp_path, 3)
    with open_small(tmp_path) as owner:
        end = owner.max_offset
        page = page_of(tmp_path)
    assert SharedPage.make(FILES, tmp_path).words[STATE] == OwnerState.OPENING
    assert (page.readable, page.flushed) == (end, end)


def test_beside_a_page_that_is_gone(tmp_path: Path) -> None:
    """The owner goes on with the file that it has mapped, readers go by the log."""
    with open_small(tmp_path) as store, read_small(tmp_path) as reader:
        fill(store, 3)
        page_path(tmp_path).unlink()
        end = fill(store, 3)[-1].end_offset
        assert store.wait_dispatched()
        assert (store.max_offset, reader.max_offset) == (end, end)
        assert len(list(reader.scan())) == 6
        assert len(reader.get("t", 0, 0, 32).messages) == 6
    with open_small(tmp_path) as store:
        assert store.max_offset == end
        assert page_of(tmp_path).readable == end


def test_half_a_page_is_no_page(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    os.truncate(page_path(tmp_path), 100)
    assert PageView.open(FILES, tmp_path) is None
    with open_small(tmp_path):
        assert page_path(tmp_path).stat().st_size == PAGE_BYTES


WATCHER = """
import mmap, os, sys
from lakelog.files.pages import shared_page as page
fd = os.open(sys.argv[1], os.O_RDONLY)
words = memoryview(mmap.mmap(fd, page.PAGE_BYTES, access=mmap.ACCESS_READ)).cast("Q")
places = [getattr(page, name) for name in sys.argv[2:]]
before, moves, seen = dict.fromkeys(places, 0), 0, False
print("ready", flush=True)
while words[page.STATE] == page.OwnerState.OPEN:
    for word in places:
        now = words[word]
        assert now >= before[word], (word, before[word], now)
        moves += now != before[word]
        before[word] = now
    if moves > 100 and not seen:
        seen = True
        print("enough", flush=True)
print(*before.values(), flush=True)
"""


WATCHED = ("APPENDED", "FLUSHED", "DISPATCHED", "LAST_TIMESTAMP", "FLUSHED_TIMESTAMP", "RECORDS")


def test_no_word_goes_back_under_load(tmp_path: Path) -> None:
    with open_small(tmp_path, flush="inline", segment_size_bytes=1 << 20) as store:
        watcher = subprocess.Popen(
            [sys.executable, "-c", WATCHER, str(page_path(tmp_path)), *WATCHED],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "ready\n"
        enough = Event()

        def fill_on() -> None:
            while not enough.is_set():
                fill(store, 20)

        with ThreadPoolExecutor(4) as pool:
            filling = [pool.submit(fill_on) for _ in range(4)]
            try:
                assert watcher.stdout.readline() == "enough\n"
            finally:
                enough.set()
            for each in filling:
                each.result()
        end = store.max_offset
    seen = [*map(int, watcher.communicate(timeout=20)[0].split())]
    assert watcher.returncode == 0
    assert max(seen[:3]) <= end


def test_a_signal_while_somebody_is_woken() -> None:
    """Who was not woken for it is woken by the next move."""
    positions, calls = Positions(), list[int]()

    def sleeper() -> None:
        calls.append(0)
        if len(calls) == 1:
            raise KeyboardInterrupt

    positions.sleeper = sleeper
    with pytest.raises(KeyboardInterrupt):
        positions.moved()
    positions.moved()
    positions.moved()
    assert len(calls) == 2


def test_positions_without_a_page_are_the_same(tmp_path: Path) -> None:
    """Whoever moves one stores its word, whatever words these are."""
    for given in ({}, {"words": memoryview(mmap.mmap(-1, PAGE_BYTES)).cast("Q")}):
        positions = Positions(**given)
        positions.start(5, 10, 7, 99, durable=True)
        words = positions.words
        assert (positions.minimum, positions.dispatched, positions.readable) == (5, 7, 10)
        words[APPENDED], words[FLUSHED] = 20, 15
        assert (positions.appended, positions.committed, positions.flushed) == (20, 20, 15)
        assert positions.readable == positions.readable_elsewhere == 15
        positions.start(5, 10, 7, 99, durable=False, staged=True)
        words[APPENDED], words[COMMITTED] = 20, 15
        assert (positions.readable, positions.readable_elsewhere) == (20, 15)
        assert (positions.flushed, positions.flushed_timestamp_ms) == (10, 99)
