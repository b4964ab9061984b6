"""The log of one owner: edges, rolls, order, what stands on the disk, and what readers hold."""

from __future__ import annotations

import gc
import mmap
import os
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.tests.store.support import (
    SEGMENT,
    a_record_of,
    a_store,
    fill,
    open_small,
    read_small,
    segments,
)
from lakelog import Message, PutRefused, PutStatus
from lakelog.errors import OffsetOutOfRange
from lakelog.format.layout import BLANK, COMMIT, MAGIC_BLANK, PREPARED, ROLLBACK
from lakelog.format.record_batch import Blank
from lakelog.log.commit_log import HIDDEN_STEP_MS
from lakelog_testing.contracts.writer import open_in
from lakelog_testing.crash.opener import owned_by
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways


@pytest.mark.parametrize("left", [8, 91, 1000])
@pytest.mark.parametrize("reopen", [False, True])
def test_a_record_may_leave_eight_bytes_or_more(left: int, reopen: bool, tmp_path: Path) -> None:
    store = open_small(tmp_path)
    assert store.put(a_record_of(SEGMENT - left)).end_offset == SEGMENT - left
    if reopen:
        store.close()
        store = open_small(tmp_path)
    with store:
        assert len(segments(tmp_path)) == 1
        behind = store.put(a_record_of(max(200, left)))
        assert behind.physical_offset == SEGMENT
        assert behind.queue_offset == 1
        blank = segments(tmp_path)[0].read_bytes()[-left:]
        assert blank[:8] == BLANK.pack(left, MAGIC_BLANK)
        assert Blank(SEGMENT - left, left) in list(store.scan_pieces())
        assert len(list(store.scan())) == 2


@pytest.mark.parametrize("left", [0, 4, 7])
def test_a_record_that_would_leave_less_rolls(left: int, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        first = store.put(a_record_of(SEGMENT - 1000))
        behind = store.put(a_record_of(1000 - left))
        assert behind.physical_offset == SEGMENT
        blank = segments(tmp_path)[0].read_bytes()[first.end_offset :]
        assert blank == BLANK.pack(1000, MAGIC_BLANK) + bytes(992)


@pytest.mark.parametrize("left", [0, 7])
def test_a_record_that_fits_into_no_segment_rolls_nothing(left: int, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.put(Message("t", b""))
        with pytest.raises(PutRefused) as caught:
            store.put(a_record_of(SEGMENT - left))
        assert caught.value.status is PutStatus.MESSAGE_SIZE_EXCEEDED
        assert len(segments(tmp_path)) == 1
        assert store.put(a_record_of(SEGMENT - 8)).physical_offset == SEGMENT


def test_closing_where_the_log_ends_with_a_segment(tmp_path: Path) -> None:
    """The segment that was rolled to holds nothing: it goes on there."""
    with open_small(tmp_path, preallocate=True) as store:
        store.put(a_record_of(SEGMENT - 8))
    assert len(segments(tmp_path)) == 1
    for number in range(1, 5):
        with open_small(tmp_path, preallocate=True) as store:
            assert store.put(a_record_of(SEGMENT - 8)).physical_offset == number * SEGMENT
    with read_small(tmp_path) as store:
        assert [each.queue_offset for each in store.scan()] == list(range(5))
        assert store.max_offset == 5 * SEGMENT - 8


def test_empty_segments_behind_the_log_are_used(tmp_path: Path) -> None:
    """RocketMQ leaves the segments that it made ahead of need."""
    a_store(tmp_path, 10)
    for number in (1, 2):
        (tmp_path / "commitlog" / f"{number * SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    with read_small(tmp_path) as reader:
        end = reader.max_offset
    with open_small(tmp_path) as store:
        assert store.max_offset == end
        fill(store, 100)
        assert len(list(store.scan())) == 110
    assert all(each.stat().st_size == SEGMENT for each in segments(tmp_path))


def test_a_scan_between_any_two_offsets(tmp_path: Path) -> None:
    """Records that start from `start` up to `end`, wherever `end` falls."""
    results = a_store(tmp_path, 90, segment_size_bytes=SEGMENT)
    places = [each.physical_offset for each in results]
    edge = next(place for place in places if place >= SEGMENT)
    ends = {0, 1, 7, 8, 90, 91, 92, 500, SEGMENT - 3, SEGMENT, edge + 1, places[-1], places[-1] + 1}
    with open_small(tmp_path) as owner, read_small(tmp_path) as reader:
        for store in (owner, reader):
            for end in sorted(ends | {places[40] + 8, places[41], 10**9}):
                for start in (0, places[3], edge):
                    damage: list[object] = []
                    got = [
                        each.physical_offset
                        for each in store.scan(start, end, on_damage=damage.append)
                    ]
                    assert got == [place for place in places if start <= place < end]
                    assert damage == []


def test_only_whole_segments_ever_stand_in_the_log(tmp_path: Path) -> None:
    seen: set[tuple[int, int]] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            with os.scandir(tmp_path / "commitlog") as entries:
                for entry in entries:
                    status = entry.stat()
                    seen.add((len(entry.name), status.st_size))
                    assert status.st_blocks * 512 >= SEGMENT

    with open_small(tmp_path, preallocate=True) as store, ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        for _ in range(15):
            store.put_batch([Message("t", bytes(1500))] * 40)
        stop.set()
        watching.result()
    assert seen == {(20, SEGMENT)}
    assert len(segments(tmp_path)) > 50


def test_the_files_beside_the_log_are_those_of_rocketmq(tmp_path: Path) -> None:
    zero = bytes(4096)
    with open_small(tmp_path) as store:
        assert (tmp_path / "abort").read_text() == str(os.getpid())
        assert (tmp_path / "abort.bak").read_bytes() == b""
        assert (tmp_path / "lock").read_bytes() == b"lock"
        assert (tmp_path / "checkpoint").read_bytes() == zero
        result = fill(store, 10)[-1]
        assert (tmp_path / "checkpoint").read_bytes() == zero
    assert not (tmp_path / "abort").exists()
    numbers = (result.store_timestamp_ms, result.store_timestamp_ms, 0, 0, result.end_offset)
    after = struct.pack(">qqqqq", *numbers).ljust(4096, b"\0")
    assert (tmp_path / "checkpoint").read_bytes() == after
    with open_small(tmp_path):
        assert (tmp_path / "checkpoint").read_bytes() == after
    assert (tmp_path / "checkpoint").read_bytes() == after


def test_the_checkpoint_of_rocketmq_keeps_what_lakelog_does_not_know(tmp_path: Path) -> None:
    result = a_store(tmp_path, 2)[-1]
    theirs = struct.pack(">qqqqq", 1, 2, 3, 4, 5).ljust(4096, b"\0")
    (tmp_path / "checkpoint").write_bytes(theirs)
    open_small(tmp_path).close()
    numbers = struct.unpack(">qqqqq", (tmp_path / "checkpoint").read_bytes()[:40])
    assert numbers == (result.store_timestamp_ms, 2, 3, 4, result.end_offset)


def test_no_descriptor_and_no_thread_is_left(tmp_path: Path) -> None:
    others = threading.enumerate()  # other tests may have left some that are about to end
    for _ in range(2):
        with open_small(tmp_path, preallocate=True) as store:
            fill(store, 40)
            store.put_async(Message("t", b"")).result()
            list(store.scan())
        with read_small(tmp_path) as reader:
            list(reader.scan())
            reader.look_up(0)
            assert reader.get("t", 0, 0, 100).messages
        del store, reader
        gc.collect()  # a map goes with its last view
        assert open_in(tmp_path) == []
        assert [each for each in threading.enumerate() if each not in others] == []


def test_deleting_while_syncing_keeps_the_active_segment_in_sight(tmp_path: Path) -> None:
    """What was deleted during a sync must not push the active segment out of the next one."""
    with open_small(tmp_path) as store:
        fill(store, 100)
        log = owned_by(store).segments
        first = log._unsynced[0].writer
        sync, refused = first.sync, []

        def meanwhile() -> None:
            with pytest.raises(ValueError, match="not durable yet"):
                log.exclude_first()
            refused.append(True)
            sync()

        first.sync = meanwhile  # type: ignore[method-assign]  # something comes in its midst
        owned_by(store).log.sync()
        assert refused
        assert [each.writer for each in log._unsynced] == [log.active]
        assert log.exclude_first() == SEGMENT


@pytest.mark.parametrize("flush", ["none", "inline", "group-commit"])
def test_reading_ends_at_what_is_durable_where_puts_wait_for_that(
    flush: str, tmp_path: Path
) -> None:
    """Of the owner and of readers: what waits may yet be taken back by a crash of the machine."""
    with open_small(tmp_path, flush=flush, plugins=None) as owner, read_small(tmp_path) as reader:
        fill(owner, 3)
        assert owner.wait_dispatched()
        durable = owner.max_offset
        batch = owned_by(owner).appender._encode((Message("t", b"no result yet", queue_id=0),))
        end = owned_by(owner).log.append(batch)
        if flush != "none":
            for store in (owner, reader):
                assert store.max_offset == store.flushed_offset == durable
                assert len(list(store.scan())) == len(store.get("t", 0, 0, 9).messages) == 3
                with pytest.raises(OffsetOutOfRange):
                    store.look_up(durable)
            owned_by(owner).log.sync()
        assert owner.wait_dispatched(end)
        for store in (owner, reader):
            assert store.max_offset == end
            assert len(list(store.scan())) == 4
        assert len(owner.get("t", 0, 0, 9).messages) == 4
        until(lambda: len(reader.get("t", 0, 0, 9).messages) == 4)  # it kept its view for a moment


@pytest.mark.parametrize("flush", ["inline", "group-commit"])
def test_a_put_that_does_not_wait_is_read_soon(flush: str, tmp_path: Path) -> None:
    """It is not durable when its put returns; nobody else puts, and all the same it is synced."""
    with open_small(tmp_path, flush=flush, plugins=None) as store:
        result = store.put(Message("t", b"", queue_id=0, wait_store_ok=False))
        assert len(store.get("t", 0, 0, wait_ms=20_000).messages) == 1
        assert store.flushed_offset == result.end_offset


def test_queue_offsets_go_on_after_a_reopen(tmp_path: Path) -> None:
    def light(names: str) -> Message:
        return Message("top", b"", properties={"INNER_MULTI_DISPATCH": names}, queue_id=0)

    counts: dict[tuple[str, int], int] = defaultdict(int)
    for _ in range(3):
        with open_small(tmp_path, light_queues=True) as store:
            for sys_flag in (0, PREPARED, COMMIT, ROLLBACK, 0):
                for queue_id in (0, 5):
                    result = store.put(Message("tx", b"", queue_id=queue_id, sys_flag=sys_flag))
                    queued = not sys_flag & PREPARED
                    assert result.queue_offset == (counts["tx", queue_id] if queued else 0)
                    counts["tx", queue_id] += queued
            for names in ("%LMQ%a,%LMQ%b", "%LMQ%b", "plain,%LMQ%a"):
                result = store.put(light(names))
                assert result.queue_offset == counts["top", 0]
                counts["top", 0] += 1
                found = store.look_up(result.physical_offset).properties
                queues = [name for name in names.split(",") if name.startswith("%LMQ%")]
                offsets = ",".join(str(counts[name, 0]) for name in queues)
                assert found["INNER_MULTI_QUEUE_OFFSET"] == offsets
                for name in queues:
                    counts[name, 0] += 1


def test_a_clock_that_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store times follow a correction, but no fall of a second, not even over runs."""
    # In plain Python: nobody can replace the clock of compiled code.
    now = [2_000_000_000_000]
    monkeypatch.setattr(time, "time_ns", lambda: now[0] * 1_000_000)
    with open_small(tmp_path, plugins=[]) as store:
        assert store.put(Message("t", b"")).store_timestamp_ms == 2_000_000_000_000
        now[0] -= HIDDEN_STEP_MS
        assert store.put(Message("t", b"")).store_timestamp_ms == 2_000_000_000_000
    with open_small(tmp_path, plugins=[]) as store:
        assert store.put(Message("t", b"")).store_timestamp_ms == 2_000_000_000_000
        now[0] -= 1
        assert store.put(Message("t", b"")).store_timestamp_ms == now[0]
        now[0] -= 3_600_000
        assert store.put(Message("t", b"")).store_timestamp_ms == now[0]
    with open_small(tmp_path, plugins=[]) as store:
        assert store.put(Message("t", b"")).store_timestamp_ms == now[0]


_CHANGE = """
import mmap, os, sys
memory = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
while os.getppid() == int(sys.argv[2]):
    for letter in (b"a", b"b"):
        memory[:] = letter * len(memory)
"""


@pytest.mark.parametrize(
    ("call", "size", "count"),
    [
        *((call, 8000, 400) for call in ("put", "put_async", "bound")),
        *((call, 500_000, 40) for call in ("put", "put_batch", "put_columns")),
    ],
)
def test_the_checksum_is_that_of_the_bytes_that_were_written(
    call: str, size: int, count: int, tmp_path: Path
) -> None:
    """Another process writes to the memory of the bodies; the first body has no `a` or `b`.

    It writes between a copy and a checksum of a large body; a put of one is left to Python.
    """
    shared = tmp_path / "shared"
    shared.write_bytes(b"-" * size)
    with shared.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    view = memoryview(memory)
    command = [sys.executable, "-c", _CHANGE, str(shared), str(os.getpid())]
    with (
        open_small(
            tmp_path / "s", segment_size_bytes="8MiB", record_crc=True, plugins=None
        ) as store,
        subprocess.Popen(command) as other,
    ):
        try:
            until(lambda: view[0] != ord("-"))
            put_one = store.producer("t").put
            for _ in range(count // 4):
                four = [Message("t", view)] * 4
                match call:
                    case "put" | "put_async":
                        for each in four:
                            getattr(store, call)(each)
                    case "put_batch":
                        store.put_batch(four)
                    case "put_columns":
                        store.put_columns("t", [view] * 4)
                    case _:
                        for each in four:
                            put_one(each.body)
        finally:
            other.kill()
        store.flush()
        assert sum(len(each.body) for each in store.scan()) == count * len(view)
