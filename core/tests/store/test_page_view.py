"""What the shared page says of an owner, and readers that go by it, beside owners elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from core.tests.store.support import SEGMENT, a_store, bodies, fill, open_small, read_small
from core.tests.store.workers import an_owner
from lakelog import Message
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages import publishing
from lakelog.files.pages.page_reader import PageReader, ReaderDurableEnd
from lakelog.files.pages.page_view import PageView
from lakelog.files.pages.shared_page import (
    APPENDED,
    COMMITTED,
    FLAGS,
    FLUSHED,
    LAST_TIMESTAMP,
    MAGIC,
    STAGED,
    STATE,
    OwnerState,
    page_path,
)
from lakelog.files.shared.membership import alone
from lakelog.files.shared.ownership import is_published
from lakelog.interfaces import Outcome
from lakelog.registry.builtin.flush import InlineFlush
from lakelog_interfaces.checkpoint import read_checkpoint
from lakelog_testing.crash.opener import owned_by
from tests.support.waiting import until

FILES = RealFileSystem()


def forge(path: Path, word: int, value: int) -> None:
    with page_path(path).open("r+b") as file:
        file.seek(8 * word)
        file.write(value.to_bytes(8, sys.byteorder))


def page_of(path: Path) -> PageView:
    page = PageReader(FILES, path).page()
    assert page is not None
    return page


# --- readers beside an owner -------------------------------------------------------------------


def test_a_reader_sees_what_was_put_and_what_is_durable(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, read_small(tmp_path) as reader:
        assert (reader.max_offset, reader.flushed_offset) == (0, 0)
        end, flushed = owner.ends("put", "m", 100)
        assert 0 == flushed < end
        assert (reader.max_offset, reader.flushed_offset) == (end, 0)
        assert len(list(reader.scan())) == 100
        assert owner.ends("store._owned.log.sync()") == (end, end)
        assert (reader.max_offset, reader.flushed_offset) == (end, end)
        assert reader.is_flushed_known
        assert len(reader.get("t", 0, 0, 200).messages) == 100


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
        assert bodies(reader.scan())[3:] == [b"late"]
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
        end, _ = owner.ends("put", "m", 20)
        assert reader.max_offset == end
        owner.kill()
        stale = PageView.open(FILES, tmp_path)
        assert stale is not None
        assert (stale.state, stale.readable) == (OwnerState.OPEN, end)
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
    with an_owner(tmp_path, flush="inline") as owner, read_small(tmp_path) as reader:
        durable, _ = owner.ends("put", "m", 20)
        assert reader.flushed_offset == durable
        owner.kill()
        assert read_checkpoint(FILES, tmp_path).confirm_offset == 0
        assert (reader.flushed_offset, reader.is_flushed_known) == (durable, True)
        with read_small(tmp_path) as late:
            assert (late.flushed_offset, late.is_flushed_known) == (0, False)
        open_small(tmp_path).close()
        assert reader.flushed_offset == durable


def test_what_the_checkpoint_vouches_for_after_a_crash(tmp_path: Path) -> None:
    with an_owner(tmp_path, flush="inline") as owner:
        durable, _ = owner.ends("put", "m", 30)
        owner.ends("(store._owned.checkpoint.advance(), 0)[1]")
        end, _ = owner.ends("put", "m", 5)
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
        until(lambda: read_checkpoint(FILES, tmp_path).confirm_offset)
        found = read_checkpoint(FILES, tmp_path)
        assert found.confirm_offset == results[-1].end_offset
        assert found.physic_timestamp_ms == stamp


def test_another_program_that_owns_the_store(tmp_path: Path) -> None:
    """RocketMQ locks byte 0; what the page of an earlier owner says is nothing then."""
    results = a_store(tmp_path, 20)
    forge(tmp_path, STATE, OwnerState.OPEN)
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
        assert PageReader(FILES, tmp_path).page() is not None
        words = owned_by(owner).positions.words
        words[0] = MAGIC + 1
        assert PageReader(FILES, tmp_path).page() is None
        words[0] = MAGIC
        for state in OwnerState:
            words[STATE] = state
            believed = state in (OwnerState.OPEN, OwnerState.FAILED, OwnerState.CLOSING)
            assert (PageReader(FILES, tmp_path).page() is not None) == believed
        words[STATE] = OwnerState.OPEN


def test_what_an_owner_adds_while_the_end_is_looked_for_is_not_durable(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    with open_small(tmp_path) as store:
        durable = store.max_offset
    flushed = ReaderDurableEnd(FILES, tmp_path, lambda: None)
    with ExitStack() as owners:
        ends = list[int]()

        def end_beside_an_owner() -> int:
            if not ends:
                owner = owners.enter_context(an_owner(tmp_path))
                ends.append(owner.ends("put", "m", 1)[0])
            return ends[0]

        assert flushed.end(end_beside_an_owner) == durable < ends[0]


# --- a child that C code forked keeps the locks of its parent, and so outlives it ---


def test_the_page_of_a_dead_process_whose_locks_a_child_holds_is_right(tmp_path: Path) -> None:
    """The page is right all the same."""
    code = (
        "import ctypes, lakelog, os, sys, time\n"
        "store = lakelog.open(sys.argv[1], plugins=[], flush='none', preallocate=False,\n"
        f"                     segment_size_bytes={SEGMENT})\n"
        "store.put(lakelog.Message('t', b'x'))\n"
        "sys.setswitchinterval(60); time.sleep(0.2)  # the child has no thread to switch to\n"
        "child = ctypes.PyDLL(None).fork()\n"
        "if child == 0: os.close(1); time.sleep(60)\n"
        "print(child, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=30)
    try:
        assert is_published(FILES, tmp_path)
        assert PageReader(FILES, tmp_path).page() is not None
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)
