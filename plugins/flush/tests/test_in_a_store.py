"""Both strategies in a real store, observed at the file interface."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import lakelog
from lakelog import Message, PutResult, Store
from lakelog.errors import StoreFailed
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.log.put_future import PutFuture
from lakelog.message import Body
from lakelog.results import PutStatus
from lakelog_flush import plugin
from lakelog_testing import FaultyFile
from lakelog_testing.crash.opener import owned_by
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways

PATIENCE_SECONDS = 20.0
SEGMENT = 64 << 10


class SegmentFile(FaultyFile):
    """A segment that is written by ``write_at`` only.

    :ivar written: end of the written bytes
    :ivar durable: end of the bytes written before the start of a completed sync
    """

    def __init__(self, inner: File, disk: Disk) -> None:
        super().__init__(inner)
        self.disk = disk
        self.written = 0
        self.durable = 0

    def write_at(self, position: int, data: Body) -> None:
        super().write_at(position, data)
        self.written = max(self.written, position + len(data))

    def sync(self) -> None:
        end = self.written
        self.disk.wait()
        super().sync()
        self.durable = max(self.durable, end)


class Disk(RealFileSystem):
    """Real files, with the segments as :class:`SegmentFile`.

    :ivar sync_seconds: additional duration of each sync of a segment
    :ivar segments: segments by start offset
    """

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.go.set()
        self.sync_seconds, self.broken = 0.0, False
        self.segments: dict[int, SegmentFile] = {}

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        if not (path.name.isdigit() and path.parent.name in ("commitlog", "tmp")):
            return file
        found = SegmentFile(file, self)
        known = self.segments.get(int(path.name))
        if known is not None:  # reopened to record the clean stop
            found.written, found.durable, found.syncs = known.written, known.durable, known.syncs
        self.segments[int(path.name)] = found
        return found

    def wait(self) -> None:
        """Called within each sync of a segment."""
        self.begun.set()
        time.sleep(self.sync_seconds)
        self.go.wait()
        if self.broken:
            raise OSError(errno.EIO, "this test's disk fails")

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Stall syncs within the block."""
        self.begun.clear()
        self.go.clear()
        try:
            yield
        finally:
            self.go.set()

    def break_syncs(self) -> None:
        """Make this and every later sync fail."""
        self.broken = True
        self.go.set()

    @property
    def syncs(self) -> int:
        """The number of syncs of all segments."""
        return sum(file.syncs for file in list(self.segments.values()))

    def covers(self, offset: int, end_offset: int) -> bool:
        """Whether a sync that started after the record was written has returned."""
        start = max(each for each in self.segments if each <= offset)
        return self.segments[start].durable >= end_offset - start


@pytest.fixture
def disk() -> Disk:
    return Disk()


def open_on(disk: Disk, path: Path, **more: Any) -> Store:
    given: dict[str, Any] = {
        "plugins": [plugin],
        "files": disk,
        "flush": "group-commit",
        "dispatchers": (),
        "segment_size_bytes": SEGMENT,
        "file": {"map_below_bytes": 0},  # so that every write is observed
        **more,
    }
    return lakelog.open(path, **given)


def message(body_bytes: int = 100) -> Message:
    return Message("t", b"b" * body_bytes, queue_id=0)


def test_64_waiting_producers_share_syncs_that_cover_each_put(disk: Disk, tmp_path: Path) -> None:
    producers, puts = 64, 50
    disk.sync_seconds = 0.001  # as on a disk: in memory, no two puts would share a sync

    with open_on(disk, tmp_path / "s", segment_size_bytes=4 << 20) as store:

        def produce(_: int) -> list[bool]:
            return [covered(store.put(message())) for _ in range(puts)]

        def covered(result: PutResult) -> bool:
            in_time = result.status is PutStatus.PUT_OK
            return in_time and disk.covers(result.physical_offset, result.end_offset)

        before = disk.syncs
        with ThreadPoolExecutor(producers) as pool:
            done = [each for part in pool.map(produce, range(producers)) for each in part]
        assert (len(done), all(done)) == (producers * puts, True)
        assert disk.syncs - before <= 400


def test_a_group_that_spans_a_roll_syncs_both_files(disk: Disk, tmp_path: Path) -> None:
    with open_on(disk, tmp_path / "s") as store:
        with ThreadPoolExecutor(1) as pool:
            with disk.stalled():
                first = store.put_async(message())
                assert disk.begun.wait(PATIENCE_SECONDS)
                # in a thread, as the new segment is synced too
                more = pool.submit(lambda: [store.put_async(message(30_000)) for _ in range(5)])
                time.sleep(0.1)  # until the first of them are appended
            futures = more.result(PATIENCE_SECONDS)
        for future in (first, *futures):
            result = future.result(PATIENCE_SECONDS)
            assert result.status is PutStatus.PUT_OK
            assert disk.covers(result.physical_offset, result.end_offset)
        assert len({result.result().physical_offset // SEGMENT for result in futures}) == 3
        assert all(file.durable == file.written for file in disk.segments.values())


def test_when_the_sync_hangs_a_put_ends_in_time_and_its_message_is_seen_later(
    disk: Disk, tmp_path: Path
) -> None:
    """It is in the log, and unreadable before it is durable."""
    section = {"group-commit": {"sync_flush_timeout_ms": 50}}
    with open_on(disk, tmp_path / "s", on_late="return", **section) as store:
        with disk.stalled():
            result = store.put(message())
            late = store.put_async(message()).result(PATIENCE_SECONDS)
            assert result.status is late.status is PutStatus.FLUSH_DISK_TIMEOUT
            assert store.max_offset == store.flushed_offset == 0
            assert list(store.scan()) == []
        until(lambda: store.flushed_offset == late.end_offset)
        assert [each.physical_offset for each in store.scan()] == [0, late.physical_offset]


def test_a_failed_sync_fails_all_with_its_cause_and_is_never_repeated(
    disk: Disk, tmp_path: Path
) -> None:
    store = open_on(disk, tmp_path / "s", preallocate=False)  # the next segment is synced too
    with ThreadPoolExecutor(8) as pool, disk.stalled():
        waiting = [pool.submit(store.put, message()) for _ in range(8)]
        waiting += [store.put_async(message()) for _ in range(8)]
        assert disk.begun.wait(PATIENCE_SECONDS)
        time.sleep(0.1)  # until all of them wait
        disk.break_syncs()
        for put in waiting:
            error = put.exception(PATIENCE_SECONDS)
            assert isinstance(error, StoreFailed)
            assert isinstance(error.__cause__, OSError)
            assert error.__cause__.errno == errno.EIO
    assert len({id(put.exception()) for put in waiting[:8]}) == 8, "threads share an error"
    assert store.flushed_offset == 0
    disk.broken = False
    before = disk.syncs
    time.sleep(0.1)
    with pytest.raises(StoreFailed):
        store.close()
    assert disk.syncs == before
    assert (tmp_path / "s" / "abort").exists()


def test_every_put_that_returned_before_the_close_is_durable(disk: Disk, tmp_path: Path) -> None:
    with open_on(disk, tmp_path / "s") as store, ThreadPoolExecutor(4) as pool:
        futures = list(pool.map(lambda _: store.put_async(message()), range(200)))
    for future in futures:
        assert future.result(0).status is PutStatus.PUT_OK
        assert disk.covers(future.result().physical_offset, future.result().end_offset)


@pytest.mark.parametrize("accelerator", ["auto", "none"])
def test_an_event_loop_is_woken_once_for_all_that_share_a_sync(
    disk: Disk, tmp_path: Path, accelerator: str
) -> None:
    async def run(store: Store) -> int:
        loop, wakes = asyncio.get_running_loop(), list[object]()
        wake = loop.call_soon_threadsafe

        def count(*given: Any, **more: Any) -> asyncio.Handle:
            wakes.append(given)
            return wake(*given, **more)

        with disk.stalled():
            first = store.put_async(message())
            assert disk.begun.wait(PATIENCE_SECONDS)  # most likely it covers no other
            futures = [store.put_async(message()) for _ in range(50)]
            tasks = [asyncio.ensure_future(awaited(each)) for each in (first, *futures)]
            await asyncio.sleep(0)
            setattr(loop, "call_soon_threadsafe", count)  # noqa: B010  # mypy forbids to assign a method
        for result in await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_SECONDS):
            assert disk.covers(result.physical_offset, result.end_offset)
        return len(wakes)

    async def awaited(future: PutFuture) -> PutResult:
        return await future

    with open_on(disk, tmp_path / "s", accelerator=accelerator) as store:
        assert 1 <= asyncio.run(run(store)) <= 2


@pytest.mark.parametrize("accelerator", ["auto", "none"])
def test_asynchronous_puts_and_batches_keep_the_order_of_the_calls(
    disk: Disk, tmp_path: Path, accelerator: str
) -> None:
    with open_on(disk, tmp_path / "s", accelerator=accelerator) as store, disk.stalled():
        ends: list[tuple[int, int]] = []
        futures = []
        for _ in range(20):
            single, batch = store.put_async(message()), store.put_batch_async([message()] * 2)
            futures.append((single, batch))
        disk.go.set()
        for single, batch in futures:
            results = (single.result(PATIENCE_SECONDS), *batch.result(PATIENCE_SECONDS))
            ends += [(each.physical_offset, each.end_offset) for each in results]
    assert all(before[1] == after[0] for before, after in pairwise(ends))


@pytest.mark.parametrize("timeout_ms", [50, 60_000])
def test_a_callback_waits_for_an_asynchronous_put(
    disk: Disk, tmp_path: Path, timeout_ms: int
) -> None:
    """The callback runs in the syncing thread, and in the thread that times out puts."""
    statuses, hangs = Queue[PutStatus](), timeout_ms == 50
    section = {"group-commit": {"sync_flush_timeout_ms": timeout_ms}}
    with open_on(disk, tmp_path / "s", on_late="return", **section) as store:

        def again(_: object) -> None:
            statuses.put(store.put_async(message()).result(PATIENCE_SECONDS).status)

        with disk.stalled():
            for _ in range(10):
                store.put_async(message()).add_done_callback(again)
            if not hangs:
                disk.go.set()
            expected = PutStatus.FLUSH_DISK_TIMEOUT if hangs else PutStatus.PUT_OK
            found = [statuses.get(timeout=PATIENCE_SECONDS) for _ in range(10)]
            assert found == [expected] * 10


def test_timed_flushes_by_the_clock(disk: Disk, tmp_path: Path) -> None:
    section = {"timed": {"flush_interval_ms": 5, "flush_thorough_interval_ms": 0}}
    with open_on(disk, tmp_path / "s", flush="timed", **section) as store:
        result = store.put(message())
        until(lambda: store.flushed_offset == result.end_offset)
        assert disk.covers(0, result.end_offset)


def test_timed_is_what_a_store_uses_by_itself(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "s", plugins=[plugin], segment_size_bytes=SEGMENT) as store:
        assert type(owned_by(store).appender._flush).__name__ == "Timed"


def test_a_slow_flush_is_logged(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog_flush.timed.SLOW_SECONDS", 0.01)
    disk.sync_seconds = 0.02
    with (
        caplog.at_level(logging.WARNING, "lakelog"),
        open_on(disk, tmp_path / "s", flush="timed") as store,
    ):
        store.put(message())
    assert "a flush took" in caplog.text
