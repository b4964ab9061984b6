"""The positions page, and readers that go by it, beside owners in other processes."""

from __future__ import annotations

import errno
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
from core.tests.store.support import a_store, bodies, fill, open_small, read_small
from lakelog import Message, PutStatus
from lakelog.builtin.flush import NoFlush
from lakelog.checkpoint import read_checkpoint
from lakelog.errors import StoreError, StoreFailed
from lakelog.files import RealFileSystem
from lakelog.ownership import OwnerLock, is_published
from lakelog.pages import publishing
from lakelog.pages.belief import Belief, ReaderFlushed
from lakelog.pages.pageview import PageView, process_start
from lakelog.pages.sharedpage import (
    COMMITTED,
    DISPATCHED,
    DISPATCHER_PID,
    DISPATCHER_START,
    FLAGS,
    FLUSHED,
    HEARTBEAT,
    MAGIC,
    MINIMUM,
    OWNER_PID,
    OWNER_START,
    PAGE_BYTES,
    RECORDS,
    STAGED,
    STATE,
    State,
    page_path,
)
from lakelog.positions import Positions
from lakelog.testing.crash.opener import owned_by

FILES = RealFileSystem()


def page_of(path: Path) -> PageView:
    page = Belief(FILES, path).page()
    assert page is not None
    return page


# --- readers beside an owner -------------------------------------------------------------------


def test_a_reader_sees_what_was_confirmed_and_what_is_durable(tmp_path: Path) -> None:
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


def test_a_reader_stops_at_puts_without_a_result(tmp_path: Path) -> None:
    """One that is appended, and waits, may yet be taken back by a crash."""
    waits, go_on = threading.Event(), threading.Event()
    with open_small(tmp_path) as owner, read_small(tmp_path) as reader:
        fill(owner, 3)
        appender = owned_by(owner).appender

        class Slow(NoFlush):
            def submit(self, _end_offset: int, _wait: bool) -> PutStatus:
                waits.set()
                go_on.wait(20)
                return PutStatus.PUT_OK

        flush, appender._flush = appender._flush, Slow()
        putting = threading.Thread(target=owner.put, args=(Message("t", b"late", queue_id=0),))
        putting.start()
        waits.wait(20)
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
        positions.committed = results[-1].end_offset
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
        forge(tmp_path, CONFIRMED, 1 << 40)
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
        stamp = log.last_timestamp_ms
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
    forge(tmp_path, CONFIRMED, results[3].end_offset)
    lock = OwnerLock.take(FILES, tmp_path)
    with read_small(tmp_path) as reader:
        assert reader.max_offset == results[-1].end_offset
        assert not reader.is_flushed_known
        assert reader.flushed_offset == 0
        lock.release()
        assert reader.flushed_offset == results[-1].end_offset, "it was closed cleanly"


def test_a_page_of_another_process_is_not_believed(tmp_path: Path) -> None:
    with open_small(tmp_path) as owner:
        assert Belief(FILES, tmp_path).page() is not None
        words = owned_by(owner).positions.words
        for word, wrong in ((OWNER_START, 1), (OWNER_PID, 1 << 22), (0, MAGIC + 1)):
            right, words[word] = words[word], wrong
            assert Belief(FILES, tmp_path).page() is None
            words[word] = right
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
        end = fill(store, 5)[-1].end_offset
        store.wait_dispatched()
        assert is_published(FILES, tmp_path)
        content = page_path(tmp_path).read_bytes()
        assert len(content) == PAGE_BYTES
        words = memoryview(content).cast("Q")
        expected = (MAGIC, end, end, end, end, end, 0, os.getpid(), process_start(os.getpid()))
        assert tuple(words[:9]) == expected
        assert abs(words[HEARTBEAT] - time.time() * 1000) < 20_000
        assert words[STATE] == State.OPEN
        assert words[FLAGS] == 0
        assert words[RECORDS] == 5
        assert tuple(words[DISPATCHER_PID : DISPATCHER_START + 1]) == tuple(words[7:9])
        abort, boot = os.stat(tmp_path / "abort"), Path("/proc/sys/kernel/random/boot_id")
        boot_id = uuid.UUID(boot.read_text().strip())
        assert words[17] << 64 | words[18] == boot_id.int
        assert tuple(words[19:21]) == (abort.st_ino, abort.st_ctime_ns)
        assert not any(words[21:])
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
        assert reader.flushed_offset == end
        assert len(list(reader.scan())) == 6
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
    files.arm(1, errno.ENOSPC, lambda call, at: call == "allocate" and at.name == "positions")
    with pytest.raises(OSError, match="ENOSPC"):
        make_page(files, tmp_path)
    assert not page_path(tmp_path).exists()
    assert make_page(files, tmp_path)[STATE] == State.OPENING


def test_who_looked_just_before_the_owner_changed_sees_no_empty_log(tmp_path: Path) -> None:
    """A reader that has seen the state, and is held up until the next owner makes its page."""
    a_store(tmp_path, 3)
    with open_small(tmp_path) as owner:
        end = owner.max_offset
        page = page_of(tmp_path)
    words = make_page(FILES, tmp_path)
    assert words[STATE] == State.OPENING
    assert (page.readable, page.flushed) == (end, end)


def test_words_of_no_page_are_not_kept(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    page_path(tmp_path).write_bytes(b"\x7f" * PAGE_BYTES)
    assert not any(make_page(FILES, tmp_path)[1:OWNER_PID])


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
fd = os.open(sys.argv[1], os.O_RDONLY)
words = memoryview(mmap.mmap(fd, 4096, access=mmap.ACCESS_READ)).cast("Q")
before, moves = [0] * 7, 0
print("ready", flush=True)
while words[10] == 3:
    for word in range(1, 7):
        now = words[word]
        assert now >= before[word], (word, before[word], now)
        moves += now != before[word]
        before[word] = now
print(moves, *before, flush=True)
"""


def test_no_word_goes_back_under_load(tmp_path: Path) -> None:
    with open_small(tmp_path, flush="inline", segment_size_bytes=1 << 20) as store:
        watcher = subprocess.Popen(
            [sys.executable, "-c", WATCHER, str(page_path(tmp_path))],
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
    moves, *words = map(int, watcher.communicate(timeout=20)[0].split())
    assert watcher.returncode == 0
    assert moves > 100
    assert words[CONFIRMED] <= end


def test_positions_without_a_page_are_the_same(tmp_path: Path) -> None:
    """Whoever moves one stores its word, whatever words these are."""
    positions = Positions.at(5, 10)
    words = memoryview(mmap.mmap(-1, PAGE_BYTES)).cast("Q")
    positions.publish(words)
    positions.minimum, positions.flushed, positions.dispatched = 6, 8, 7
    assert (words[MINIMUM], words[FLUSHED], words[DISPATCHED]) == (6, 8, 7)
    assert (positions.minimum, positions.flushed, positions.dispatched) == (6, 8, 7)
