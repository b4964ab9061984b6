"""A reader beside a living owner: right at any moment, and it reads only the end of the log."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lakelog
import lakelog.log.scan
from core.tests.store.support import FileBounds
from lakelog.dispatch import DispatchCursor, NamedDispatcher
from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE
from lakelog.format.record_batch import RecordBatch
from lakelog.log.log_reader import LogReader
from lakelog.log.sources import FileSource
from lakelog.processes.ownership import is_followed, is_owned
from lakelog_queues.dispatching import consumequeues
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_queues.dispatching.tombstones import TombstoneFile
from lakelog_queues.files.simplequeue import SimpleQueue, first_behind
from lakelog_queues.plugin import ConsumeQueueSettings
from lakelog_queues.readers import ReaderCatchUp
from lakelog_queues.units.simpleunits import UNIT, UNIT_BYTES
from plugins.queues.tests.consumequeue.support import contents, plain, queues

FILES = RealFileSystem()
SEGMENT_BYTES = 4 << 20
SETTINGS: dict[str, Any] = {
    "segment_size_bytes": SEGMENT_BYTES,
    "dispatchers": ["consume-queue"],
    "flush": "none",
}
UNITS = ConsumeQueueSettings()
COUNT = 6000
OWNER = f"""
import sys, lakelog
with lakelog.open(sys.argv[1], **{SETTINGS!r}) as store:
    for start in range(0, {COUNT}, 500):
        store.put_batch([lakelog.Message(f"t{{at % 7}}", b"x" * 4000, queue_id=at % 3)
                         for at in range(start, start + 500)])
    store.wait_dispatched()
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def owner_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", OWNER, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def log_reader(path: Path) -> LogReader:
    source = FileSource(FILES, path / "commitlog", SEGMENT_BYTES)
    return LogReader(source, FileBounds(source), lambda: is_owned(FILES, path))


def missing(reader: LogReader, made: ConsumeQueues, end: int) -> list[str]:
    """The queues that differ from the log up to ``end``, in words."""
    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for piece in reader.pieces(0, end):
        if isinstance(piece, RecordBatch):
            for at, topic in enumerate(piece.topics):
                queue = (topic, int(piece.queue_ids[at]))
                expected[queue].append(int(piece.physical_offsets[at]))
    wrong = []
    for queue, offsets in expected.items():
        units = made.units(queue, 0, 1 << 40)
        found = units.offsets[units.offsets < end].tolist()
        stated = units.queue_offsets.tolist() == list(range(len(units)))
        if found != offsets or not stated:
            wrong.append(f"{queue}: {len(found)} of {len(offsets)}")
    return wrong


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each batch that is dispatched here."""
    seen: list[int] = []
    inner = ConsumeQueues.dispatch

    def dispatch(self: ConsumeQueues, batch: RecordBatch) -> None:
        seen.append(int(batch.sizes.sum()))
        inner(self, batch)

    monkeypatch.setattr(ConsumeQueues, "dispatch", dispatch)
    return seen


def test_what_is_read_at_once_is_what_a_scan_reads_at_once() -> None:
    assert consumequeues.BATCH_BYTES == lakelog.log.scan.WINDOW_BYTES


def test_a_reader_beside_an_owner_reads_the_end_of_the_log_only(
    tmp_path: Path, dispatched: list[int]
) -> None:
    with owner_process(tmp_path) as owner:
        with lakelog.open(tmp_path, mode="read", **SETTINGS) as store:
            assert sum(info.max_offset for info in store.queues()) == COUNT
            assert 0 < sum(dispatched) <= 5 * consumequeues.BATCH_BYTES < COUNT * 4000
            assert store.get("t3", 1, 280, 9).messages[-1].queue_offset == 285
        opened_before = lakelog.open(tmp_path, mode="read", **SETTINGS)
        owner.kill()
        owner.wait()
    dispatched.clear()
    with opened_before as store:
        assert sum(info.max_offset for info in store.queues()) == COUNT
    assert sum(dispatched) <= 5 * consumequeues.BATCH_BYTES
    dispatched.clear()
    with lakelog.open(tmp_path, mode="read", **SETTINGS) as store:
        assert sum(info.max_offset for info in store.queues()) == COUNT
    assert sum(dispatched) > COUNT * 4000  # after a crash of the owner, the whole log is dispatched


def test_an_owner_that_is_not_done_with_its_queues_does_not_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[bool] = []
    with lakelog.open(tmp_path, **SETTINGS) as store:
        store.put_batch([lakelog.Message("t", b"x")] * 9)
    monkeypatch.setattr(
        DispatchCursor, "run", lambda *_: followed.append(is_followed(FILES, tmp_path))
    )
    folder = tmp_path / "consumequeue" / "t" / "0"
    for file in folder.iterdir():
        file.unlink()
    with lakelog.open(tmp_path, **SETTINGS):
        assert is_followed(FILES, tmp_path)
    assert followed[0] is False
    assert not is_followed(FILES, tmp_path)


def test_an_owner_that_keeps_no_queues_does_not_say_so(tmp_path: Path) -> None:
    with lakelog.open(tmp_path, **{**SETTINGS, "dispatchers": []}):
        assert is_owned(FILES, tmp_path)
        assert not is_followed(FILES, tmp_path)


def test_an_owner_whose_dispatch_fails_at_open_never_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakelog.open(tmp_path, **SETTINGS) as store:
        store.put_batch([lakelog.Message("t", b"x")] * 9)
    for file in (tmp_path / "consumequeue" / "t" / "0").iterdir():
        file.unlink()

    def refuse(self: ConsumeQueues, batch: RecordBatch) -> None:
        raise StoreError(f"not these {len(batch)}", path=self._path)

    monkeypatch.setattr(ConsumeQueues, "dispatch", refuse)
    with lakelog.open(tmp_path, **SETTINGS) as store:
        assert store.dispatch_failure is not None
        assert is_owned(FILES, tmp_path)
        assert not is_followed(FILES, tmp_path)


def test_readers_are_right_at_any_moment_while_an_owner_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakelog.log.scan, "WINDOW_BYTES", 16 << 10)
    monkeypatch.setattr(consumequeues, "BATCH_BYTES", 16 << 10)
    monkeypatch.setattr(consumequeues, "_SLACK_BYTES", 16 << 10)  # the least that is right
    load = SimpleQueue.load

    def slowly(self: SimpleQueue, *, thorough: bool) -> bool:
        time.sleep(0.004)  # so that the owner puts several batches between two queues
        return load(self, thorough=thorough)

    monkeypatch.setattr(SimpleQueue, "load", slowly)
    starts: list[int] = []
    wrong: list[str] = []
    stop = threading.Event()

    def put(store: lakelog.Store) -> None:
        at = 0
        while not stop.is_set():
            store.put_batch(
                [
                    lakelog.Message(f"t{(at + i) % 5}", b"y" * 300, queue_id=(at + i) % 3)
                    for i in range(30)
                ]
            )
            at += 30
            stop.wait(0.02)

    with lakelog.open(tmp_path, **SETTINGS) as store:
        thread = threading.Thread(target=put, args=(store,))
        thread.start()
        try:
            while len(starts) < 5 or starts[-1] <= 50_000:
                assert is_followed(FILES, tmp_path)
                reader, made = log_reader(tmp_path), queues(tmp_path, UNITS, read_only=True)
                completion = ReaderCatchUp(
                    *(tmp_path, reader, [NamedDispatcher("consume-queue", made)]),
                    *(lambda: None, TombstoneFile(FILES, tmp_path)),
                )
                starts.append(completion._begin().offset)
                for _ in range(2):
                    completion.reach(now=True)
                    wrong += missing(reader, made, completion.offset)
                made.close()
        finally:
            stop.set()
            thread.join()
    assert wrong == []


def test_an_owner_that_opens_after_the_reader_is_seen(tmp_path: Path) -> None:
    made = queues(tmp_path)
    made.resume(0, 0)
    made.dispatch(plain("t", range(20)))
    made.flush()
    calm = queues(tmp_path, read_only=True)
    assert calm.resume(0, 4000) == 4000
    late = queues(tmp_path, read_only=True)
    (tmp_path / ABORT_FILE).touch()
    assert late.resume(0, 4000) == 0
    late.dispatch(plain("t", range(20)))
    assert contents(late) == contents(made)
    for each in (calm, late, made):
        each.close()


@pytest.mark.parametrize("reads", range(8))
def test_files_are_deleted_while_a_queue_is_searched(reads: int) -> None:
    """The deletion comes behind any number of reads; what is before the searched unit goes."""
    many = np.arange(1000, dtype=np.int64)
    raw = np.zeros(1000, UNIT)
    raw["offset"], raw["size"] = 100 * many, 100
    data, done = raw.tobytes(), list[int]()

    def read(first: int, count: int) -> bytes:
        done.append(first)
        if first < 690 and len(done) > reads:
            return b""  # as SizedFiles: the range begins in a file that is gone
        return data[first * UNIT_BYTES : (first + count) * UNIT_BYTES]

    assert first_behind(read, 0, 1000, 70_000) == 700
    assert len(done) > 5
