"""The page that processes share: made by one, joined by others; what its words say to readers."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from core.tests.processes.dying import die
from core.tests.store.faults import NthFails
from core.tests.store.support import SEGMENT, a_store, bodies, fill, open_small, read_small
from core.tests.store.workers import an_owner
from lakelog import Message
from lakelog.builtin import InlineFlush
from lakelog.errors import SettingsError, StoreError, StoreFailed, StoreLocked
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks import Outcome
from lakelog.processes import positions
from lakelog.processes import shared_page as pages
from lakelog.processes.membership import alone
from lakelog.processes.ownership import is_published
from lakelog.processes.positions import Positions
from lakelog.processes.shared_page import (
    OwnerState,
    PageReader,
    PageView,
    ReaderDurableEnd,
    SharedPage,
    page_path,
    process_start,
)
from lakelog_testing.crash.opener import owned_by
from tests.support.sampling import at_every, every
from tests.support.waiting import until

FILES = RealFileSystem()
SETTINGS = {"flush": "timed", "plugins": {"mmap": "1.0"}, "record_crc": False}


def make(path: Path, segment_bytes: int = 1 << 20) -> SharedPage:
    (path / "lakelog").mkdir(exist_ok=True)
    page = SharedPage.make(FILES, path)
    page.reset(segment_bytes, SETTINGS)
    return page


def join(path: Path) -> SharedPage:
    return SharedPage.join(FILES, path)


def test_the_next_run_goes_on_in_the_same_page(tmp_path: Path) -> None:
    """A reader of the former run may look at a position now, and has seen the state before."""
    former = make(tmp_path)
    former.words[pages.APPENDED], former.words[pages.PROOF[0]] = 7, 8
    former.words[pages.INTENT_END] = former.words[pages.MARKED] = former.words[pages.SYNCS] = 9
    former.fail("disk")
    made = SharedPage.make(FILES, tmp_path)
    assert former.words[pages.STATE] == OwnerState.OPENING
    assert (former.words[pages.APPENDED], former.words[pages.PROOF[0]]) == (7, 8)
    assert former.failure == "disk"
    made.reset(1 << 21, {})
    assert (former.words[pages.SEGMENT_BYTES], former.settings) == (1 << 21, {})
    assert former.words[pages.APPENDED] == 7
    for at in (pages.INTENT_END, pages.MARKED, pages.SYNCS, pages.FAILED):
        assert former.words[at] == 0
    assert former.failure is None


@pytest.mark.parametrize("length", [0, 100, pages.PAGE_BYTES, 1 << 16])
def test_a_file_that_is_no_page_becomes_one(tmp_path: Path, length: int) -> None:
    (tmp_path / "lakelog").mkdir()
    page_path(tmp_path).write_bytes(b"\xff" * length)
    words = make(tmp_path).words
    assert (words[0], words[pages.STATE], words[pages.APPENDED]) == (
        pages.MAGIC,
        OwnerState.OPENING,
        0,
    )
    assert page_path(tmp_path).stat().st_size >= pages.PAGE_BYTES
    assert join(tmp_path).settings == SETTINGS


def test_settings_that_are_nonsense_or_too_long(tmp_path: Path) -> None:
    page, joined = make(tmp_path), join(tmp_path)
    assert joined.settings == SETTINGS
    page.memory[4104:4112] = b"nonsense"
    assert joined.settings == {}
    with pytest.raises(SettingsError, match="settings that all processes share do not fit into"):
        page.reset(1, {"long": "x" * pages.PAGE_BYTES})


def test_the_first_failure_is_told_to_all(tmp_path: Path) -> None:
    one, other = make(tmp_path), join(tmp_path)
    assert other.failure is None
    one.fail("kein Platz \N{EM DASH} " + "x" * pages.PAGE_BYTES)
    other.fail("another")
    assert other.failure is not None
    assert other.failure.startswith("kein Platz \N{EM DASH} xxx")
    assert join(tmp_path).settings == SETTINGS


@pytest.mark.parametrize("length", [None, 0, pages.PAGE_BYTES - 1])
def test_a_page_that_is_gone_or_cut_short(tmp_path: Path, length: int | None) -> None:
    make(tmp_path)
    if length is None:
        page_path(tmp_path).unlink()
    else:
        os.truncate(page_path(tmp_path), length)
    with pytest.raises(StoreError, match=r"lakelog/shared: .* is gone, or was cut short"):
        join(tmp_path)
    make(tmp_path)
    join(tmp_path)


def test_a_page_of_another_version_or_of_nonsense(tmp_path: Path) -> None:
    make(tmp_path).words[0] += 1
    with pytest.raises(StoreError, match=r"another version of lakelog, or .* damaged"):
        join(tmp_path)


def test_a_page_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pages, "boot_id", lambda: b"0123456789abcdef")
        make(tmp_path)
    with pytest.raises(StoreLocked, match="a process of another host"):
        join(tmp_path)


@at_every(29)
def test_a_death_at_any_step_leaves_what_the_next_one_can_go_on_with(
    tmp_path: Path, stride: int
) -> None:
    page = make(tmp_path, 1)
    page.words[pages.APPENDED] = 7
    for step in every(stride):
        page.words[pages.STATE], page.words[pages.INTENT_END] = OwnerState.OPEN, 1
        lived = not die(step, pages, partial(make, tmp_path, 2))
        if page.words[pages.INTENT_END] == 0:
            assert page.words[pages.STATE] == OwnerState.OPENING
        assert (page.words[0], page.words[pages.APPENDED]) == (pages.MAGIC, 7)
        if lived:
            break
        page.words[pages.INTENT_END] = 1
        made = make(tmp_path, 3)
        assert (made.words[pages.INTENT_END], made.words[pages.SEGMENT_BYTES]) == (0, 3)
        assert made.settings == SETTINGS
    assert step > 50
    assert page.words[pages.SEGMENT_BYTES] == 2
    assert sorted(each.name for each in (tmp_path / "lakelog").iterdir()) == ["shared"]


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
    waits, go_on = Event(), Event()
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
        putting = Thread(target=owner.put, args=(Message("t", b"late", queue_id=0),))
        putting.start()
        waits.wait(20)
        assert reader.max_offset == owner.max_offset < owned_by(owner).log.appended
        assert len(list(reader.scan())) == 3
        assert len(reader.get("t", 0, 0, 9).messages) == 3
        go_on.set()
        putting.join(20)
        assert bodies(reader.scan())[3:] == [b"late"]
        appender._flush = flush


def test_a_killed_owners_page_counts_no_more(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, read_small(tmp_path) as reader:
        end, _ = owner.ends("put", "m", 20)
        assert reader.max_offset == end
        owner.kill()
        stale = PageView.open(FILES, tmp_path)
        assert stale is not None
        assert (stale.state, stale.readable) == (OwnerState.OPEN, end)
        forge(tmp_path, pages.APPENDED, 1 << 40)
        forge(tmp_path, pages.FLUSHED, 1 << 40)
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
    monkeypatch.setattr(positions, "CHECKPOINT_MS", 0)
    with open_small(tmp_path, dispatchers=[]) as store:
        results = fill(store, 5)
        log = owned_by(store).log
        log.sync()
        stamp = log.positions.words[pages.LAST_TIMESTAMP]
        time.sleep(0.002)
        fill(store, 5)
        until(lambda: read_checkpoint(FILES, tmp_path).confirm_offset)
        found = read_checkpoint(FILES, tmp_path)
        assert found.confirm_offset == results[-1].end_offset
        assert found.physic_timestamp_ms == stamp


def test_another_program_that_owns_the_store(tmp_path: Path) -> None:
    """RocketMQ locks byte 0; what the page of an earlier owner says is nothing then."""
    results = a_store(tmp_path, 20)
    forge(tmp_path, pages.STATE, OwnerState.OPEN)
    forge(tmp_path, pages.APPENDED, results[3].end_offset)
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
        words[0] = pages.MAGIC + 1
        assert PageReader(FILES, tmp_path).page() is None
        words[0] = pages.MAGIC
        for state in OwnerState:
            words[pages.STATE] = state
            believed = state in (OwnerState.OPEN, OwnerState.FAILED, OwnerState.CLOSING)
            assert (PageReader(FILES, tmp_path).page() is not None) == believed
        words[pages.STATE] = OwnerState.OPEN


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


def test_the_page_of_a_dead_process_whose_locks_a_child_holds_is_right(tmp_path: Path) -> None:
    """C code forked the child, which keeps the locks of its parent, and so outlives it."""
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


FILES = RealFileSystem()


def test_its_words(tmp_path: Path) -> None:
    with open_small(tmp_path, flush="inline") as store:
        last = fill(store, 5)[-1]
        store.wait_dispatched()
        assert is_published(FILES, tmp_path)
        content = page_path(tmp_path).read_bytes()
        assert len(content) == pages.PAGE_BYTES
        words = memoryview(content).cast("Q")
        me = os.getpid()
        expected = {
            **dict.fromkeys((pages.APPENDED, pages.FLUSHED, pages.DISPATCHED), last.end_offset),
            **dict.fromkeys(
                (pages.LAST_TIMESTAMP, pages.FLUSHED_TIMESTAMP), last.store_timestamp_ms
            ),
            pages.OWNER_PID: me,
            pages.OWNER_START: process_start(me),
            pages.DISPATCHER_PID: me,
            pages.DISPATCHER_START: process_start(me),
            0: pages.MAGIC,
            pages.MINIMUM: 0,
            pages.STATE: OwnerState.OPEN,
            pages.FLAGS: pages.DURABLE,
            pages.RECORDS: 5,
            pages.SYNCS: 5,
            pages.SEGMENT_BYTES: SEGMENT,
        }
        assert {at: words[at] for at in expected} == expected
        assert abs(words[pages.HEARTBEAT] - time.time() * 1000) < 20_000
        abort, boot = os.stat(tmp_path / "abort"), Path("/proc/sys/kernel/random/boot_id")
        assert content[8:24] == uuid.UUID(boot.read_text().strip()).bytes
        assert (words[pages.PROOF[2]], words[pages.PROOF[3]]) == (abort.st_ino, abort.st_ctime_ns)
        assert not any(content[512:4096]), "nothing has failed"
        assert SharedPage.join(FILES, tmp_path).settings["segment_size_bytes"] == SEGMENT
    assert not is_published(FILES, tmp_path)
    closed = PageView.open(FILES, tmp_path)
    assert closed is not None
    assert closed.state is OwnerState.CLOSED


def test_its_heart_beats(tmp_path: Path) -> None:
    with open_small(tmp_path):
        page = page_of(tmp_path)
        first = page.words[pages.HEARTBEAT]
        until(lambda: page.words[pages.HEARTBEAT] != first)


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


ENDS = (pages.APPENDED, pages.FLUSHED, pages.DISPATCHED)
WATCHED = (*ENDS, pages.LAST_TIMESTAMP, pages.FLUSHED_TIMESTAMP, pages.RECORDS)


def test_no_word_goes_back_under_load(tmp_path: Path) -> None:
    with open_small(tmp_path, flush="inline", segment_size_bytes=1 << 20) as store:
        words, enough = page_of(tmp_path).words, Event()

        def fill_on() -> None:
            while not enough.is_set():
                fill(store, 20)

        with ThreadPoolExecutor(4) as pool:
            filling = [pool.submit(fill_on) for _ in range(4)]
            before, moves = dict.fromkeys(WATCHED, 0), 0
            try:
                while moves < 100:
                    now = {word: words[word] for word in WATCHED}
                    assert all(now[word] >= before[word] for word in WATCHED), (before, now)
                    moves += now != before
                    before = now
            finally:
                enough.set()
            for each in filling:
                each.result()
        assert max(before[end] for end in ENDS) <= store.max_offset


def test_an_opening_that_fails_leaves_it_as_it_was(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    before = page_path(tmp_path).read_bytes()
    files = NthFails()
    files.arm(1, errno.EIO, lambda call, at: call == "sync" and at.name == "checkpoint")
    with pytest.raises(StoreError):
        open_small(tmp_path, files=files)
    assert page_path(tmp_path).read_bytes() == before
    assert not is_published(FILES, tmp_path)


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
