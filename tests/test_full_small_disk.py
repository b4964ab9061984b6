"""A disk of 32 MiB that gets full: cleaned, cleaned forcibly, refused, and back again.

Everything that was acknowledged, and that no cleaning took, is there at the end.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from zlib import crc32

import attrs
import pytest

from core.tests.test_dispatch import Recorder
from lakelog import Message, PutRefused, Store
from lakelog.errors import LakelogError
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import DiskState, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl
from lakelog.results import PutStatus
from lakelog_retention import plugin
from lakelog_testing import FakeClock
from plugins.retention.tests.clocked_stores import HOUR_MS, EventRecorder, open_clocked, starts
from tests.support.smalldisk import tmpfs
from tests.support.waiting import until

pytestmark = pytest.mark.root
MIB = 1 << 20
DISK_BYTES = 32 * MIB
BODY_BYTES = 60_000
START_MS = 1_767_225_600_000
"""Midnight: no hour to delete in."""
EATER = """
import os, sys
with open(sys.argv[1], "wb") as file:
    piece, at = 1 << 20, 0
    while piece >= 4096:
        try:
            os.posix_fallocate(file.fileno(), at, piece)
            at += piece
        except OSError:
            piece //= 2
print("eaten", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    with tmpfs(tmp_path, DISK_BYTES) as place:
        yield place


@attrs.define(eq=False)
class Log:
    """A store, and what it has acknowledged."""

    path: Path
    recorder: EventRecorder
    store: Store
    acknowledged: dict[int, bytes] = attrs.field(factory=dict)

    @property
    def clock(self) -> FakeClock:
        return self.recorder.clock

    def put(self, body_bytes: int = BODY_BYTES) -> None:
        body = b"%08d" % len(self.acknowledged) * (body_bytes // 8)
        result = self.store.put(Message("t", body, queue_id=0))
        assert result.queue_offset == len(self.acknowledged)
        self.acknowledged[result.physical_offset] = body

    def put_until(self, used_ratio: float) -> None:
        while used(self.path) <= used_ratio:
            self.put()

    def round(self, ms: int = 10_000) -> None:
        self.clock.advance_and_settle(ms)

    def state(self) -> DiskState:
        return self.recorder.states[-1] if self.recorder.states else DiskState.OK


class Late(Recorder):
    """A dispatcher that waits while a test says so, and all others with it; a plugin, too."""

    def __init__(self) -> None:
        super().__init__("late", [])
        self.may_go_on = Event()
        self.may_go_on.set()

    @hookimpl
    def lakelog_dispatchers(self) -> Sequence[Factory]:
        return [Factory(Kind.DISPATCHER, self.name, NoSettings, lambda _settings, _context: self)]

    def dispatch(self, batch: RecordBatch) -> None:
        assert self.may_go_on.wait(60)


def used(path: Path) -> float:
    found = os.statvfs(path)
    return 1 - found.f_bavail / found.f_blocks


def opened(path: Path, recorder: EventRecorder, **more: Any) -> Store:
    given: dict[str, Any] = {
        "segment_size_bytes": MIB,
        "disk_watcher": "psutil",
        "retention": {"time_zone": "UTC", "delete_files_batch_max": 2, "delete_interval_ms": 0},
        "maintenance": {"first_round_ms": 10_000, "interval_ms": 10_000},
        "preallocate": False,
        "consume_queue": {"file_entries": 1000},
    }
    return open_clocked(path, recorder, **{**given, **more})


@pytest.fixture
def log(disk: Path) -> Iterator[Log]:
    recorder = EventRecorder(FakeClock(START_MS))
    with opened(disk / "store", recorder) as store:
        log = Log(disk / "store", recorder, store)
        yield log
        check(store, log.acknowledged, recorder)
    with opened(disk / "store", EventRecorder(FakeClock(START_MS))) as store:
        check(store, log.acknowledged, recorder)


def check(store: Store, acknowledged: dict[int, bytes], recorder: EventRecorder) -> None:
    """What was acknowledged is there, but for the segments that were deleted."""
    assert store.wait_dispatched()
    count, found, queue, deleted, first = while_nothing_goes(store, recorder)
    assert sorted(deleted) == list(range(0, count * MIB, MIB))
    assert first == count * MIB
    kept = {at: body for at, body in acknowledged.items() if at >= count * MIB}
    are_there = found == kept  # by itself: 20 MB take longer to compare for show than a test may
    are_in_order = queue == [kept[at] for at in sorted(kept)]
    assert are_there, f"by offset: {len(found)} found, {len(kept)} kept"
    assert are_in_order, f"in the queue: {len(queue)} found, {len(kept)} kept"


def while_nothing_goes(
    store: Store, recorder: EventRecorder
) -> tuple[int, dict[int, bytes], list[bytes], list[int], int]:
    """The number of deleted segments and the bodies, by offset and in the order of the queue.

    Then the deleted segments as the witness saw them, and the first that is there. All of it is of
    one moment: a round may delete meanwhile, and its witness is notified a moment later.
    """
    while True:
        count = store.min_offset // MIB
        with suppress(LakelogError):  # it went while it was read
            found = {each.physical_offset: bytes(each.body) for each in store.scan()}
            queue = [bytes(each.body) for each in store.read("t", 0)]
            deleted, first = list(recorder.deleted), starts(store.path)[0]
            if count == store.min_offset // MIB == len(deleted):
                return count, found, queue, deleted, first
        time.sleep(0.01)


def refused(log: Log) -> None:
    """A put is refused, and says why."""
    for put in (log.put, lambda: log.store.put_async(Message("t", b"x")).result()):
        with pytest.raises(PutRefused, match=r"warning_ratio is 90.0%|not yet below") as caught:
            put()
        assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert str(log.path) in str(caught.value)
    assert not log.store.is_writable


def test_filled_by_appends(log: Log) -> None:
    log.put_until(0.3)
    log.clock.advance(100 * HOUR_MS)  # what is there now is expired; it is 04:00, four days later
    log.clock.set_back(HOUR_MS)  # and now not
    log.put_until(0.6)
    log.round()
    assert (log.state(), log.recorder.deleted) == (DiskState.OK, [])

    log.put_until(0.77)
    assert log.store.wait_dispatched()  # who dispatches holds what it reads
    log.round()
    assert log.recorder.states == [DiskState.CLEAN, DiskState.OK]
    assert len(log.recorder.deleted) == 2, "expired ones, at any hour"
    expired = len(log.recorder.deleted)
    while used(log.path) > 0.4 and log.state() is not DiskState.OK:
        log.round()

    log.put_until(0.87)
    log.round()
    assert DiskState.CLEAN_FORCIBLY in log.recorder.states
    assert len(log.recorder.deleted) == expired + 2
    while starts(log.path)[0] < 9 * MIB:  # until what is there is young
        log.put_until(0.87)
        log.round()

    log.put_until(0.93)
    assert log.store.is_writable, "nobody has looked yet"
    log.round()
    assert log.state() is DiskState.STOP_WRITING
    assert used(log.path) > 0.85
    refused(log)
    rounds = 0
    while log.state() is DiskState.STOP_WRITING:
        log.round()
        rounds += 1
    assert 1 <= rounds <= 3
    assert 0.77 < used(log.path) <= 0.85, "no more went than had to"
    log.put()
    assert log.store.is_writable


def test_eaten_by_another_process(log: Log, disk: Path) -> None:
    log.put_until(0.5)
    before = len(log.acknowledged)
    with eater(disk / "other"):
        log.put()  # the segment that is there was allocated
        with pytest.raises(PutRefused, match="No space left"):  # noqa: PT012  # which of the puts is refused is not known
            for _ in range(40):
                log.put()
        assert len(log.acknowledged) > before
        log.round()
        refused(log)
        rounds_until_puts_are_taken(log)
        assert 0.75 < used(log.path) <= 0.85, "no more went than had to"
        log.put()


def test_eaten_while_queues_lag(disk: Path) -> None:
    """Queues have no room for their next page, and no segment goes that they do not know yet."""
    recorder, late = EventRecorder(FakeClock(START_MS)), Late()
    given = {"plugins": [plugin, recorder, late], "dispatchers": ("late", "consume-queue")}
    with opened(disk / "store", recorder, **given) as store:
        log = Log(disk / "store", recorder, store)
        for _ in range(150):
            log.put(80)
        while len(log.acknowledged) < 190:  # of the 204 units of a page
            log.put()
        assert store.wait_dispatched()
        late.may_go_on.clear()
        log.put_until(0.5)
        with eater(disk / "other"):
            late.may_go_on.set()
            until(lambda: store.dispatched_offset >= 2 * MIB)
            assert not store.wait_dispatched(timeout_ms=500), "it goes on once there is room"
            assert 2 * MIB <= store.dispatched_offset < 4 * MIB, "what goes makes too little room"
            log.round()
            refused(log)
            rounds_until_puts_are_taken(log)
            until(lambda: store.dispatched_offset == store.max_offset)
            log.put()
            check(store, log.acknowledged, recorder)


def rounds_until_puts_are_taken(log: Log) -> None:
    """Rounds, while the thread that dispatches gets its time between them."""

    def are_taken() -> bool:
        log.round()
        return log.state() is not DiskState.STOP_WRITING

    until(are_taken)


def test_eaten_while_nothing_may_go(disk: Path) -> None:
    recorder = EventRecorder(FakeClock(START_MS))
    with opened(disk / "store", recorder, cleaner="keep-forever") as store:
        log = Log(disk / "store", recorder, store)
        log.put_until(0.5)
        with eater(disk / "other"):
            log.round()
            refused(log)
            assert [bytes(each.body) for each in store.scan()] == list(log.acknowledged.values())
            log.round()
            refused(log)
        (disk / "other").unlink()
        log.round()
        assert recorder.states == [DiskState.STOP_WRITING, DiskState.OK]
        log.put()
        assert recorder.deleted == []
        check(store, log.acknowledged, recorder)


def eater(file: Path) -> ExitStack:
    """Another process that takes all the space there is; inside it is done."""
    stack = ExitStack()
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", EATER, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "eaten\n"
    return stack


def test_what_is_deleted_frees_its_space_at_once(log: Log) -> None:
    """Not when the interpreter next collects garbage: until then, more and more would go."""
    log.put_until(0.87)
    assert log.store.wait_dispatched()  # what was not dispatched may not be deleted
    gc.collect()
    gc.disable()
    try:
        log.round()
    finally:
        gc.enable()
    assert len(log.recorder.deleted) == 2
    assert used(log.path) <= 0.87 + 1 / 32 - 2 / 32


@pytest.mark.sample(1)
@pytest.mark.parametrize("preallocate", [False, True])
def test_many_at_once_write_four_times_what_fits(preallocate: bool, disk: Path) -> None:
    """By the machine's clock: puts outrun the rounds, and readers follow from the oldest on."""
    recorder = EventRecorder(FakeClock(START_MS))
    errors: list[BaseException] = []
    acknowledged: list[dict[int, bytes]] = [{}, {}, {}]
    done = Event()
    with opened(
        disk / "store",
        recorder,
        clock=None,
        preallocate=preallocate,
        maintenance={"first_round_ms": 0, "interval_ms": 5},
    ) as store:
        threads = [
            Thread(target=guarded, args=(errors, lambda own=own: hammer(store, own, done)))
            for own in acknowledged
        ]
        threads += [
            Thread(target=guarded, args=(errors, lambda: read_all(store, done))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60
        while store.max_offset < 4 * DISK_BYTES and not errors and time.monotonic() < until:
            time.sleep(0.01)
        done.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert store.max_offset >= 4 * DISK_BYTES
        everything = {at: body for own in acknowledged for at, body in own.items()}
        check(store, everything, recorder)
        assert DiskState.OK in recorder.states, "puts were taken again"
        assert len(recorder.deleted) > 3 * DISK_BYTES // MIB
    with opened(disk / "store", EventRecorder(FakeClock(START_MS))) as store:
        check(store, everything, recorder)


def guarded(errors: list[BaseException], work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001  # shown by the test
        errors.append(error)


def hammer(store: Store, acknowledged: dict[int, bytes], done: Event) -> None:
    number = 0
    while not done.is_set():
        number += 1
        body = b"%08d" % number * (BODY_BYTES // 8)
        try:
            result = store.put(Message("t", body, queue_id=0))
        except PutRefused:
            time.sleep(0.001)
        else:
            acknowledged[result.physical_offset] = body


def read_all(store: Store, done: Event) -> None:
    """From the oldest on, over and over; what goes meanwhile is a clear error, never SIGBUS."""
    while not done.is_set():
        held = []
        try:
            for piece in store.scan_pieces():
                if isinstance(piece, RecordBatch):
                    held += [(piece.buffer, crc32(piece.buffer))]
        except LakelogError:
            continue
        assert all(crc32(buffer) == crc for buffer, crc in held)
