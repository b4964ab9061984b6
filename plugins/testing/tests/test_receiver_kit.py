"""The kit for receivers accepts a correct one, and finds each mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from lakelog.errors import LakelogError, PutRefused, ReplicaStopped, StoreError, StoreFailed
from lakelog.format.layout import segment_name
from lakelog.format.record_batch import decode_run
from lakelog.hooks import ReplicaLog, ReplicatedLog
from lakelog.results import PutStatus
from lakelog.runtime.threads import started
from lakelog_testing import ReceiverContract


class SharedMaster:
    """A master in memory. :ivar log: its log; :ivar ends: whether it has ended."""

    def __init__(self, log: bytes) -> None:
        self.log = log
        self.ends = False


class MemoryReceiver:
    """Reads the master's bytes from memory, and compares all of them each time."""

    def __init__(self, master: SharedMaster) -> None:
        self.master = master
        self.over = Event()
        self.thread: Thread | None = None

    def start(self, log: ReplicatedLog) -> None: ...

    def submit(self, end_offset: int, wait: bool) -> PutStatus:
        return PutStatus.SERVICE_NOT_AVAILABLE

    def close(self) -> None:
        self.over.set()
        if self.thread is not None:
            self.thread.join()

    def begin(self, commitlog: Path) -> None:
        if self.master.ends:
            raise StoreError("nobody answers", path="/memory")
        commitlog.mkdir(exist_ok=True)
        (commitlog / segment_name(0)).write_bytes(bytes(1 << 20))

    def receive_into(self, log: ReplicaLog) -> None:
        self.thread = started(Thread(target=self.run, args=(log,)))

    def run(self, log: ReplicaLog) -> None:
        try:
            while not self.over.wait(0.001):
                try:
                    self.turn(log)
                except PutRefused:
                    continue
        except StoreFailed:
            return

    def turn(self, log: ReplicaLog) -> None:
        if self.master.ends:
            return
        whole, end = self.master.log, log.log.appended
        mine = bytes(log.view(0, end)) if end else b""
        if whole[:end] != mine:
            same = next(
                (at for at, pair in enumerate(zip(whole, mine, strict=False)) if len({*pair}) > 1),
                min(len(whole), end),
            )
            starts = [
                at
                for batch in log.records(0, end)
                for at in [*batch.physical_offsets.tolist(), batch.end_offset]
            ]
            offset = max(at for at in starts if at <= same)
            raise log.fail(ReplicaStopped("other bytes", path="/memory", offset=offset))
        self.append(log, end, whole[end:])
        self.vouch(log, log.log.appended)

    def append(self, log: ReplicaLog, at: int, data: bytes) -> None:
        batch = decode_run(data, at)
        if len(batch):
            last_ms = int(batch.store_timestamps_ms[-1])
            log.append(at, data[: batch.end_offset - at], last_ms)

    def vouch(self, log: ReplicaLog, end: int) -> None:
        log.vouch(end, 0)
        log.log.sync()


class Twice(MemoryReceiver):
    def turn(self, log: ReplicaLog) -> None:
        self.append(log, 0, self.master.log)


class Blind(MemoryReceiver):
    def turn(self, log: ReplicaLog) -> None:
        end = log.log.appended
        self.append(log, end, self.master.log[end:])


class Torn(MemoryReceiver):
    def append(self, log: ReplicaLog, at: int, data: bytes) -> None:
        if data:
            log.append(at, data[:-1], 0)


class Ahead(MemoryReceiver):
    def turn(self, log: ReplicaLog) -> None:
        self.vouch(log, len(self.master.log) + 1)
        super().turn(log)


class Careless(MemoryReceiver):
    def vouch(self, log: ReplicaLog, end: int) -> None: ...


class Impatient(MemoryReceiver):
    def turn(self, log: ReplicaLog) -> None:
        try:
            super().turn(log)
        except PutRefused:
            self.over.set()


class Lasting(MemoryReceiver):
    def close(self) -> None:
        super().close()
        Thread(target=Event().wait, args=(5,), daemon=True).start()


class _Kit(ReceiverContract):
    made: Callable[[SharedMaster], MemoryReceiver]
    master = SharedMaster(b"")

    def begin_master(self, data: bytes) -> None:
        self.master = SharedMaster(data)

    def extend_master(self, data: bytes) -> None:
        self.master.log += data

    def set_master_back(self, end: int, data: bytes) -> None:
        self.master.log = self.master.log[:end] + data

    def end_master(self) -> None:
        self.master.ends = True

    def make(self) -> MemoryReceiver:
        return type(self).made(self.master)


class TestInMemory(_Kit):
    made = MemoryReceiver


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("made", "test"),
    [
        (Twice, "test_it_continues_where_the_replica_ends"),
        (Blind, "test_a_master_that_is_set_back_while_it_is_followed_is_found"),
        (Torn, "test_it_receives_what_is_there_and_what_comes"),
        (Ahead, "test_what_the_master_cannot_lose_becomes_durable"),
        (Careless, "test_what_the_master_cannot_lose_becomes_durable"),
        (Impatient, "test_it_goes_on_after_an_append_that_was_refused_for_now"),
        (Lasting, "test_it_receives_what_is_there_and_what_comes"),
    ],
)
def test_each_mistake_is_found(made: type[MemoryReceiver], test: str) -> None:
    kit = type("Kit", (_Kit,), {"made": made, "patience_seconds": 0.5})()
    with pytest.raises((AssertionError, LakelogError)):
        getattr(kit, test)()
