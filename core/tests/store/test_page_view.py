"""What the shared page says of an owner, and readers that go by it, beside owners elsewhere."""

from __future__ import annotations

import errno
import json
import mmap
import os
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from core.tests.store.faults import NthFails
from core.tests.store.owners import an_owner
from core.tests.store.support import SEGMENT, a_store, bodies, fill, open_small, read_small
from lakelog import Message
from lakelog.builtin.flush import InlineFlush
from lakelog.checkpoint import read_checkpoint
from lakelog.errors import StoreError, StoreFailed
from lakelog.files import RealFileSystem
from lakelog.interfaces import Outcome
from lakelog.ownership import is_published
from lakelog.pages import publishing
from lakelog.pages.belief import Belief, ReaderFlushed
from lakelog.pages.pageview import PageView, process_start
from lakelog.pages.sharedpage import (
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
    STAGED,
    STATE,
    SYNCS,
    SharedPage,
    State,
    page_path,
)
from lakelog.positions import Positions
from lakelog.shared.membership import alone
from lakelog.testing.crash.opener import owned_by

FILES = RealFileSystem()


def page_of(path: Path) -> PageView:
    page = Belief(FILES, path).page()
    assert page is not None
    return page


# --- readers beside an owner -------------------------------------------------------------------


def test_a_reader_sees_what_was_put_and_what_is_durable(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, read_small(tmp_path) as reader:
        assert (reader.max_offset, reader.flushed_offset) == (0, 0)
        end, flushed = owner.ask("put", 100)
        assert 0 == flushed < end
        assert (reader.max_offset, reader.flushed_offset) == (end, 0)
        assert len(list(reader.scan())) == 100
        assert owner.ask("sync") == (end, end)
        assert (reader.max_offset, reader.flushed_offset) == (end, end)
        assert reader.is_flushed_known
        assert len(reader.get("t", 0, 0, 200).messages) == 100


def test_inline_puts_are_durable_for_a_reader_too(tmp_path: Path) -> None:
    with an_owner(tmp_path, "inline") as owner, read_small(tmp_path) as reader:
        end, _ = owner.ask("put", 50)
        assert reader.flushed_offset == reader.max_offset == end


def test_a_reader_stops_at_puts_that_wait_for_the_disk(tmp_path: Path) -> None:
    """One that is appended, and waits, may yet be taken back by a crash of the machine."""
    waits, go_on = threading.Event(), threading.Event()
    with open_small(tmp_path, flush="inline") as owner, read_small(tmp_path) as reader:
        fill(owner, 3)
        appender = owned_by(owner).appender
        flush = appender._flush

        class Slow(InlineFlush):
            def submit(self, end_offset: int, wait: bool) -> Outcome:
                waits.set()
                go_on.wait(20)
                return flush.submit(end_offset, wait)

        appender._flush = Slow()
        putting = threading.Thread(target=owner.put, args=(Message("t", b"late", queue_id=0),))
        putting.start()
        waits.wait(20)
        assert reader.max_offset == owner.max_offset < owned_by(owner).log.appended
        assert len(list(reader.scan())) == 3
        assert len(reader.get("t", 0, 0, 9).messages) == 3
        go_on.set()
        putting.join(20)
        assert bodies(list(reader.scan()))[3:] == [b"late"]
        appender._flush = flush


def test_a_reader_stops_at_what_a_staged_writer_has_committed(tmp_path: Path) -> None:
    with open_small(tmp_path) as owner, read_small(tmp_path) as reader:
        results = fill(owner, 10)
        positions = owned_by(owner).positions
        positions.words[FLAGS] = STAGED
        positions.words[COMMITTED] = results[4].end_offset
        assert len(list(reader.scan())) == 5
        assert reader.max_offset == results[4].end_offset
        assert reader.dispatched_offset == results[4].end_offset
        assert len(reader.get("t", 0, 0, 32).messages) == 5
        positions.words[COMMITTED] = results[-1].end_offset
        assert len(list(reader.scan())) == 10
        time.sleep(0.005)
        assert len(reader.get("t", 0, 0, 32).messages) == 10


def test_a_killed_owners_page_counts_no_more(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, read_small(tmp_path) as reader:
        end, _ = owner.ask("put", 20)
        assert reader.max_offset == end
        owner.kill()
        stale = PageView.open(FILES, tmp_path)
        assert stale is not None
        assert (stale.state, stale.readable) == (State.OPEN, end)
        forge(tmp_path, APPENDED, 1 << 40)
        forge(tmp_path, FLUSHED, 1 << 40)
        assert reader.max_offset == end
        assert reader.flushed_offset == 0, "nothing was synced, and the crash came"
        with read_small(tmp_path) as late:
            assert not late.is_flushed_known, "the checkpoint never moved"
        with open_small(tmp_path) as second:
            fill(second, 5)
            assert reader.max_offset == second.max_offset > end
        assert reader.flushed_offset == reader.max_offset


def test_what_was_durable_stays_so_when_the_owner_is_killed(tmp_path: Path) -> None:
    """The checkpoint is far behind the syncs, and vouches for none of this."""
    with an_owner(tmp_path, "inline") as owner, read_small(tmp_path) as reader:
        durable, _ = owner.ask("put", 20)
        assert reader.flushed_offset == durable
        owner.kill()
        assert read_checkpoint(FILES, tmp_path).confirm_offset == 0
        assert (reader.flushed_offset, reader.is_flushed_known) == (durable, True)
        with read_small(tmp_path) as late:
            assert (late.flushed_offset, late.is_flushed_known) == (0, False)
        open_small(tmp_path).close()
        assert reader.flushed_offset == durable


def test_what_the_checkpoint_vouches_for_after_a_crash(tmp_path: Path) -> None:
    with an_owner(tmp_path, "inline") as owner:
        durable, _ = owner.ask("put", 30)
        owner.ask("advance")
        end, _ = owner.ask("put", 5)
        owner.kill()
    with read_small(tmp_path) as reader:
        assert (reader.flushed_offset, reader.max_offset) == (durable, end)


def test_the_checkpoint_follows_the_syncs_while_the_store_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "CHECKPOINT_MS", 0)
    with open_small(tmp_path, dispatchers=[]) as store:
        results = fill(store, 5)
        log = owned_by(store).log
        log.sync()
        stamp = log.positions.words[LAST_TIMESTAMP]
        time.sleep(0.002)
        fill(store, 5)
        deadline = time.monotonic() + 20
        while (found := read_checkpoint(FILES, tmp_path)).confirm_offset == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert found.confirm_offset == results[-1].end_offset
        assert found.physic_timestamp_ms == stamp


def test_another_program_that_owns_the_store(tmp_path: Path) -> None:
    """RocketMQ locks byte 0; what the page of an earlier owner says is nothing then."""
    results = a_store(tmp_path, 20)
    forge(tmp_path, STATE, State.OPEN)
    forge(tmp_path, APPENDED, results[3].end_offset)
    lock = alone(FILES, tmp_path)
    with read_small(tmp_path) as reader:
        assert reader.max_offset == results[-1].end_offset
        assert not reader.is_flushed_known
        assert reader.flushed_offset == 0
        lock.leave()
        assert reader.flushed_offset == results[-1].end_offset, "it was closed cleanly"


def test_a_page_of_another_version_or_state_is_not_believed(tmp_path: Path) -> None:
    with open_small(tmp_path) as owner:
        assert Belief(FILES, tmp_path).page() is not None
        words = owned_by(owner).positions.words
        words[0] += 1
        assert Belief(FILES, tmp_path).page() is None
        words[0] = MAGIC
        for state in State:
            words[STATE] = state
            believed = state in (State.OPEN, State.FAILED, State.CLOSING)
            assert (Belief(FILES, tmp_path).page() is not None) == believed
        words[STATE] = State.OPEN


# --- the page ----------------------------------------------------------------------------------


def forge(path: Path, word: int, value: int) -> None:
    with page_path(path).open("r+b") as file:
        file.seek(8 * word)
        file.write(value.to_bytes(8, sys.byteorder))


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
            STATE: State.OPEN,
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
        assert json.loads(content[4104:].rstrip(b"\0"))["segment_size_bytes"] == SEGMENT
    assert not is_published(FILES, tmp_path)
    closed = PageView.open(FILES, tmp_path)
    assert closed is not None
    assert closed.state is State.CLOSED


def test_its_heart_beats(tmp_path: Path) -> None:
    with open_small(tmp_path):
        page = page_of(tmp_path)
        first, deadline = page.heartbeat_ms, time.monotonic() + 20
        while page.heartbeat_ms == first:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_failed_store_says_so_and_is_still_read(tmp_path: Path) -> None:
    files = NthFails()
    store = open_small(tmp_path, files=files, flush="inline")
    end = fill(store, 5)[-1].end_offset
    files.arm(1, errno.EIO, lambda call, at: call == "sync" and at.name.isdigit())
    with pytest.raises(StoreFailed):
        store.put(Message("t", b""))
    assert page_of(tmp_path).state is State.FAILED
    with read_small(tmp_path) as reader:
        assert reader.flushed_offset == reader.max_offset == end
        assert len(list(reader.scan())) == 5
        assert "EIO" in (SharedPage.join(FILES, tmp_path).failure or "")
    with pytest.raises(StoreFailed):
        store.close()
    assert Belief(FILES, tmp_path).page() is None


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
    assert SharedPage.make(files, tmp_path).words[STATE] == State.OPENING


def test_who_looked_just_before_the_owner_changed_sees_no_empty_log(tmp_path: Path) -> None:
    """A reader that has seen the state, and is held up until the next owner makes its page."""
    a_store(tmp_path, 3)
    with open_small(tmp_path) as owner:
        end = owner.max_offset
        page = page_of(tmp_path)
    assert SharedPage.make(FILES, tmp_path).words[STATE] == State.OPENING
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


def test_what_an_owner_adds_while_the_end_is_looked_for_is_not_durable(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    with open_small(tmp_path) as store:
        durable = store.max_offset
    flushed = ReaderFlushed(FILES, tmp_path, lambda: None)
    with ExitStack() as owners:
        ends = list[int]()

        def end_beside_an_owner() -> int:
            if not ends:
                ends.append(owners.enter_context(an_owner(tmp_path)).ask("put", 1)[0])
            return ends[0]

        assert flushed.end(end_beside_an_owner) == durable < ends[0]


def test_half_a_page_is_no_page(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    os.truncate(page_path(tmp_path), 100)
    assert PageView.open(FILES, tmp_path) is None
    with open_small(tmp_path):
        assert page_path(tmp_path).stat().st_size == PAGE_BYTES


WATCHER = """
import mmap, os, sys
from lakelog.pages import sharedpage as page
fd = os.open(sys.argv[1], os.O_RDONLY)
words = memoryview(mmap.mmap(fd, page.PAGE_BYTES, access=mmap.ACCESS_READ)).cast("Q")
places = [getattr(page, name) for name in sys.argv[2:]]
before, moves = dict.fromkeys(places, 0), 0
print("ready", flush=True)
while words[page.STATE] == page.State.OPEN:
    for word in places:
        now = words[word]
        assert now >= before[word], (word, before[word], now)
        moves += now != before[word]
        before[word] = now
print(moves, *before.values(), flush=True)
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
        threads = [threading.Thread(target=fill, args=(store, 200)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
        end = store.max_offset
    moves, *seen = map(int, watcher.communicate(timeout=20)[0].split())
    assert watcher.returncode == 0
    assert moves > 100
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
