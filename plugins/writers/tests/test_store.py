"""A store with each writer: rolls, reads before commits, reopenings, other processes, failures."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import rule

import lakelog
from lakelog import Message, Store
from lakelog.errors import LakelogError, PutRefused, SettingsError, StoreFailed
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.results import PutStatus
from lakelog_testing import FaultyFile, StoreMachine
from lakelog_testing.contracts.writer import open_files
from lakelog_testing.machine import queues
from lakelog_writers.buffers import BufferPool
from lakelog_writers.staged import StagedSegmentWriter
from tests.support.waiting import until

pytestmark = pytest.mark.disk
WRITERS: Final = ("file", "mmap", "staged", "direct")
KEEPING: Final = ("staged", "direct")
SEGMENT_BYTES: Final = 1 << 16
HOUR_MS: Final = 3_600_000
OFTEN: Final[dict[str, Any]] = {"commit_interval_ms": 1, "commit_least_pages": 0}
NEVER: Final[dict[str, Any]] = {"commit_interval_ms": HOUR_MS}
LATE: Final[dict[str, Any]] = {"flush": "timed", "timed": {"flush_interval_ms": HOUR_MS}}
SMALL: Final[dict[str, Any]] = {"buffer_bytes": 8192, "buffers": 2}


def opened(path: Path, writer: str, commits: dict[str, Any] = OFTEN, **more: Any) -> Store:
    """A store with small segments."""
    sections: dict[str, Any] = {
        "staged": {**commits, **more.pop("staged", {})},
        "direct": {**commits, **SMALL, **more.pop("direct", {})},
    }
    if writer in sections:
        more[writer] = sections[writer]
    return lakelog.open(
        path, segment_size_bytes=SEGMENT_BYTES, writer=writer, **{"flush": "none", **more}
    )


def bodies(count: int, first: int = 0) -> list[bytes]:
    """Different bodies of many lengths."""
    return [b"%06d" % at * (1 + at * 37 % 400) for at in range(first, first + count)]


def held(store: Store) -> list[bytes]:
    """All bodies of the log, in order."""
    return [bytes(message.body) for message in store.scan()]


def seen_elsewhere(path: Path) -> int:
    """The number of messages that a reader of the files sees, as another process does."""
    with lakelog.open(path, mode="read") as reader:
        return len(list(reader.scan()))


def written_by(segment: Path) -> list[int]:
    """Flags of this process's descriptors that are open for writing to a file."""
    place = str(segment)
    found = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd, name in open_files() if name == place]
    return [flags for flags in found if flags & os.O_ACCMODE != os.O_RDONLY]


def put_until_refused(store: Store) -> PutRefused:
    """Put until a put is refused; return the exception."""
    for body in bodies(1000):
        try:
            store.put(Message("orders", body))
        except PutRefused as error:
            return error
    raise AssertionError("everything was taken")


@pytest.mark.sample(8)
@pytest.mark.parametrize("flush", ["none", "inline", "timed", "group-commit"])
@pytest.mark.parametrize("writer", WRITERS)
def test_puts_rolls_reads_and_reopenings(tmp_path: Path, writer: str, flush: str) -> None:
    with opened(tmp_path, writer, flush=flush) as store:
        for body in bodies(150):
            store.put(Message("orders", body))
        store.put_batch([Message("orders", body) for body in bodies(300, 150)])
        assert store.max_offset > 5 * SEGMENT_BYTES
        assert held(store) == bodies(450)
    with opened(tmp_path, writer, flush=flush) as store:
        assert held(store) == bodies(450)
        store.put_batch([Message("orders", body) for body in bodies(200, 450)])
        assert held(store) == bodies(650)
    with opened(tmp_path, "file") as store:
        assert held(store) == bodies(650)


@pytest.mark.parametrize("writer", KEEPING)
def test_what_is_not_committed_is_read_here_and_not_elsewhere(tmp_path: Path, writer: str) -> None:
    with opened(tmp_path, writer, NEVER, **LATE) as store:
        store.put_batch([Message("orders", body) for body in bodies(5)])
        assert held(store) == bodies(5)
        assert seen_elsewhere(tmp_path) == 0
    assert seen_elsewhere(tmp_path) == 5


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_put_waited_for_is_seen_elsewhere(tmp_path: Path, writer: str) -> None:
    with opened(tmp_path, writer, NEVER, flush="inline") as store:
        store.put(Message("orders", b"waits"))
        assert seen_elsewhere(tmp_path) == 1


@pytest.mark.parametrize("writer", KEEPING)
def test_commits_come_by_themselves_and_are_dispatched(tmp_path: Path, writer: str) -> None:
    with opened(tmp_path, writer, **LATE) as store:
        end = store.put(Message("orders", b"soon", queue_id=0)).end_offset
        until(lambda: seen_elsewhere(tmp_path) == 1)
        until(lambda: store.dispatched_offset >= end)


class LookedAt(StagedSegmentWriter):
    """Calls ``then``, once, after its end was read.

    :ivar then: what another thread does
    """

    then: Callable[[], None] | None = None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == "_end" and self.then is not None:
            then, self.then = self.then, None
            then()
        return found


def test_a_segment_that_is_sealed_within_a_commit_keeps_its_last_bytes(tmp_path: Path) -> None:
    """They came after the commit had read the end, and are covered by the next one."""
    file = RealFileSystem().open(tmp_path / "segment", write=True, create=True)
    file.allocate(SEGMENT_BYTES)
    pool = BufferPool(SEGMENT_BYTES, limit=2)
    segment = LookedAt(file, 0, pool, pool.take(0))
    segment.write(0, b"first")

    def fill() -> None:
        segment.write(5, b"last")
        segment.seal()

    segment.then = fill
    assert segment.commit() == 5
    assert bytes(segment.view(0, 9)) == b"firstlast"
    assert segment.commit() == 9
    assert file.read_at(0, 9) == b"firstlast"
    segment.close()


@pytest.mark.parametrize("writer", WRITERS)
def test_a_segment_that_is_full_and_durable_keeps_no_descriptor(
    tmp_path: Path, writer: str
) -> None:
    with opened(tmp_path, writer, flush="inline") as store:
        store.put(Message("orders", b"first"))
        for body in bodies(300):
            store.put(Message("orders", body))
        assert store.wait_dispatched()
        assert store.max_offset > 5 * SEGMENT_BYTES
        names = sorted(entry.name for entry in (tmp_path / "commitlog").iterdir())
        written = [name for name in names if written_by(tmp_path / "commitlog" / name)]
        assert len(names) > 5
        assert set(written) <= set(names[-2:])  # the last one, and the preallocated one
        assert held(store)[1:] == bodies(300)


def test_the_descriptor_of_the_segment_says_o_direct(tmp_path: Path) -> None:
    with opened(tmp_path, "direct") as store:
        store.put(Message("orders", b"direct"))
        flags = written_by(tmp_path / "commitlog" / "00000000000000000000")
        assert flags
        assert all(each & os.O_DIRECT for each in flags)


# --- the pool of the staged writer ---


def test_a_pool_without_a_free_buffer_refuses_the_put_and_no_more(tmp_path: Path) -> None:
    pool = {"pool_size": 2, "pool_wait_ms": 50}
    with opened(tmp_path, "staged", NEVER, staged=pool, **LATE) as store:
        refused = put_until_refused(store)
        assert "all 2 buffers of 65536 bytes" in str(refused)
        assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        done = len(held(store))
        assert done > 50
        assert held(store) == bodies(done)
    with opened(tmp_path, "staged") as store:
        assert held(store) == bodies(done)


def test_a_put_waits_for_a_buffer_that_comes_back(tmp_path: Path) -> None:
    pool = {"pool_size": 2, "commit_interval_ms": 50, "pool_wait_ms": 10_000}
    with opened(tmp_path, "staged", staged=pool, **LATE) as store:
        for body in bodies(300):
            store.put(Message("orders", body))
        assert store.max_offset > 5 * SEGMENT_BYTES
        assert held(store) == bodies(300)


def test_a_replica_must_not_be_staged(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("transientStorePoolEnable=true\nbrokerRole=SLAVE\n")
    with pytest.raises(SettingsError, match="brokerRole=SLAVE"):
        lakelog.open(tmp_path / "store", broker_conf=conf, segment_size_bytes="64KiB")
    assert not (tmp_path / "store").exists()
    conf.write_text("transientStorePoolEnable=true\nbrokerRole=ASYNC_MASTER\n")
    with lakelog.open(tmp_path / "store", broker_conf=conf, segment_size_bytes="64KiB") as store:
        store.put(Message("orders", b"staged"))
    conf.write_text("transientStorePoolEnable=true\nbrokerRole=SLAVE\n")
    with lakelog.open(tmp_path / "store", broker_conf=conf, mode="read") as store:
        assert held(store) == [b"staged"]


# --- without direct access ---


def test_segments_must_be_made_of_whole_blocks(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="whole blocks of 4096 bytes"):
        lakelog.open(tmp_path / "store", writer="direct", segment_size_bytes=10_000)
    assert not (tmp_path / "store").exists()


# --- random user actions ---


class Keeping(StoreMachine):
    """Other processes see committed bytes only, so commit before comparing."""

    @rule(queue=queues)
    def read_beside(self, queue: tuple[str, int]) -> None:
        """A reader of the files returns the same, and changes none of them."""
        until(lambda: not self._behind())
        with self.open(mode="read") as reader:
            self._check_get(reader, queue, 0, 1000)
            self._check_columns(reader, queue)

    def _behind(self) -> bool:
        with self.open(mode="read") as reader:
            return reader.max_offset < self.store.max_offset


class Staged(Keeping):
    """Small segments, few buffers."""

    settings = MappingProxyType(
        {
            "writer": "staged",
            "staged": {**OFTEN, "pool_size": 3},
            "consume-queue": {"file_entries": 7},
        }
    )


class Direct(Keeping):
    """Small segments of few blocks."""

    settings = MappingProxyType(
        {
            "writer": "direct",
            "direct": {**OFTEN, "block_bytes": 512, "buffer_bytes": 4096, "buffers": 2},
            "consume-queue": {"file_entries": 7},
        }
    )


TestStaged = Staged.TestCase
TestDirect = Direct.TestCase
for case in (TestStaged, TestDirect):
    case.settings = hypothesis_settings(max_examples=5, stateful_step_count=20, deadline=None)
del case


# --- queues contain nothing that the files of the log lack ---


@pytest.mark.parametrize("by", ["wait", "read"])
@pytest.mark.parametrize("writer", KEEPING)
def test_who_waits_for_the_queues_has_it_committed(tmp_path: Path, writer: str, by: str) -> None:
    with opened(tmp_path, writer, NEVER, **LATE) as store:
        end = store.put(Message("orders", b"kept in the process", queue_id=0)).end_offset
        assert store.max_offset == end
        time.sleep(0.1)
        assert store.dispatched_offset == 0, "it is not committed"
        if by == "wait":
            assert store.wait_dispatched(timeout_ms=20_000)
            assert store.dispatched_offset == end
        assert [bytes(each.body) for each in store.get("orders", 0, 0, 10).messages] == [
            b"kept in the process"
        ]


@pytest.mark.parametrize("writer", KEEPING)
def test_a_close_commits_before_it_completes_the_queues(tmp_path: Path, writer: str) -> None:
    with opened(tmp_path, writer, NEVER, **LATE) as store:
        for _ in range(10):
            store.put(Message("orders", b"kept in the process", queue_id=0))
        assert store.dispatched_offset == 0
    (units,) = (tmp_path / "consumequeue" / "orders" / "0").iterdir()
    data = units.read_bytes()[: 11 * 20]
    sizes = [int.from_bytes(data[at + 8 : at + 12], "big") for at in range(0, len(data), 20)]
    assert [size > 0 for size in sizes[:11]] == [True] * 10 + [False] * (len(sizes) - 10)


# --- a failed write ends the store; a kill loses nothing that was acknowledged ---


SECTIONS: dict[str, dict[str, Any]] = {
    "staged": {"staged": {"commit_interval_ms": 1}},
    "direct": {"direct": {"buffer_bytes": 4096, "buffers": 2, "commit_interval_ms": 1}},
}


class FailingLog(RealFileSystem):
    """All writes to segments of the log fail once ``fail`` was called."""

    def __init__(self) -> None:
        self.segments: list[FaultyFile] = []

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        if not write or not path.name.isdigit() or len(path.name) != 20:
            return file
        self.segments.append(FaultyFile(file))
        return self.segments[-1]

    def fail(self) -> None:
        """Make all writes fail."""
        for segment in self.segments:
            segment.failing.add("write_at")


def opened_on(path: Path, writer: str, files: FailingLog, flush: str) -> Store:
    return lakelog.open(
        path,
        files=files,
        writer=writer,
        segment_size_bytes="64KiB",
        flush=flush,
        preallocate=False,
        **SECTIONS[writer],
    )


def put_all(store: Store, count: int) -> int:
    """Put until puts are refused; returns the number of accepted puts, whatever their results."""
    for taken in range(count):
        try:
            store.put(Message("orders", b"%04d" % taken * 20))
        except LakelogError:
            return taken
    return count


@pytest.mark.parametrize("writer", KEEPING)
def test_a_put_that_waits_hears_of_it(tmp_path: Path, writer: str) -> None:
    files = FailingLog()
    store = opened_on(tmp_path, writer, files, "inline")
    assert put_all(store, 10) == 10
    durable = store.flushed_offset
    files.fail()
    with pytest.raises(StoreFailed, match="fails"):
        store.put(Message("orders", b"lost"))
    with pytest.raises(PutRefused, match="the store failed"):
        store.put(Message("orders", b"late"))
    assert store.flushed_offset == durable
    assert len(list(store.scan(end=durable))) == 10
    with pytest.raises(StoreFailed):
        store.close()
    with opened_on(tmp_path, writer, FailingLog(), "inline") as store:
        assert [bytes(each.body)[:4] for each in store.scan()] == [b"%04d" % n for n in range(10)]


@pytest.mark.parametrize("writer", KEEPING)
def test_puts_that_do_not_wait_are_refused_soon(tmp_path: Path, writer: str) -> None:
    """The failure is that of a commit, or of a full buffer being written."""
    files = FailingLog()
    store = opened_on(tmp_path, writer, files, "timed")
    assert put_all(store, 10) == 10
    files.fail()
    assert put_all(store, 100_000) < 100_000
    with pytest.raises(PutRefused, match="the store failed"):
        store.put(Message("orders", b"late"))
    with pytest.raises(StoreFailed):
        store.close()
    with opened_on(tmp_path, writer, FailingLog(), "timed") as store:
        found = [bytes(each.body)[:4] for each in store.scan()]
        assert found == [b"%04d" % n for n in range(len(found))]


PUTS = """
import sys
import lakelog
from lakelog import Message
path, writer = sys.argv[1:]
section = {writer: {"commit_interval_ms": 3_600_000}}
if writer == "direct":
    section["direct"] |= {"buffer_bytes": 4096, "buffers": 2}
store = lakelog.open(
    path, writer=writer, flush="group-commit", segment_size_bytes="64KiB", **section
)
for number in range(1_000_000):
    body = b"%06d" % number * (1 + number % 300)
    store.put(Message("orders", body, wait_store_ok=number % 5 == 0))
    if number % 5 == 0:
        print(number, flush=True)
"""


@pytest.mark.parametrize("writer", KEEPING)
def test_a_kill_loses_nothing_that_was_waited_for(tmp_path: Path, writer: str) -> None:
    command = [sys.executable, "-c", PUTS, str(tmp_path), writer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = -1
        for line in process.stdout:
            last = int(line)
            if last == 500:
                process.send_signal(signal.SIGKILL)
    assert last >= 500
    with lakelog.open(tmp_path, writer=writer, segment_size_bytes="64KiB") as store:
        found = [bytes(message.body) for message in store.scan()]
        assert found == [b"%06d" % at * (1 + at % 300) for at in range(len(found))]
        assert len(found) > last
        assert store.recovery is not None
        assert not store.recovery.clean
