"""Puts whose sync or copies are late: each kind of put raises ``NotDurable``, or returns."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
import lakelog.aio
from lakelog import Message, NotDurable, PutResult, PutStatus, Store
from lakelog.files.filesystem import File, RealFileSystem
from lakelog_broker.appending import settled, when_put
from lakelog_testing import FaultyFile
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways

LIMIT_MS: Final = 30
SEGMENT: Final = 64 << 10
BODY: Final = b"b" * 100


class SlowFile(FaultyFile):
    """A segment whose syncs wait for an event."""

    def __init__(self, inner: File, go: threading.Event) -> None:
        super().__init__(inner)
        self.go = go

    def sync(self) -> None:
        self.go.wait()
        super().sync()


class SlowDisk(RealFileSystem):
    """Real files; syncs of the log wait while ``go`` is not set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Stall syncs within the block; a test that fails in it ends."""
        self.go.clear()
        try:
            yield
        finally:
            self.go.set()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        is_segment = path.name.isdigit() and path.parent.name in ("commitlog", "tmp")
        return SlowFile(file, self.go) if is_segment else file


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    disk = SlowDisk()
    yield disk
    disk.go.set()


def open_slow(disk: SlowDisk, path: Path, **more: Any) -> Store:
    given: dict[str, Any] = {
        "files": disk,
        "flush": "group-commit",
        "group_commit": {"sync_flush_timeout_ms": LIMIT_MS},
        "segment_size_bytes": SEGMENT,
        "preallocate": False,
        **more,
    }
    return lakelog.open(path, **given)


def message(body: bytes = BODY, *, wait: bool = True) -> Message:
    return Message("t", body, queue_id=0, wait_store_ok=wait)


Put = Callable[[Store], PutResult | Sequence[PutResult]]
PUTS: Final[dict[str, tuple[int, Put]]] = {
    "put": (1, lambda store: store.put(message())),
    "producer": (1, lambda store: store.producer("t", queue=0).put(BODY, "k")),
    "put_async": (1, lambda store: store.put_async(message()).result(30)),
    "put_batch": (3, lambda store: store.put_batch([message()] * 3)),
    "put_columns": (3, lambda store: store.put_columns("t", [BODY] * 3, queue_ids=0)),
    "put_many": (3, lambda store: store.producer("t", queue=0).put_many([BODY] * 3)),
    "put_batch_async": (3, lambda store: store.put_batch_async([message()] * 3).result(30)),
}


@pytest.mark.parametrize("put", PUTS)
def test_a_put_whose_sync_is_late_raises_with_its_result(
    disk: SlowDisk, tmp_path: Path, put: str
) -> None:
    count, call = PUTS[put]
    with open_slow(disk, tmp_path / "s") as store:
        first = store.put(message(wait=False))
        with disk.slow(), pytest.raises(NotDurable) as caught:
            call(store)
        error = caught.value
        results = [error.result] if count == 1 else list(error.result)
        assert [each.status for each in results] == [PutStatus.FLUSH_DISK_TIMEOUT] * count
        assert error.status is PutStatus.FLUSH_DISK_TIMEOUT
        assert [each.queue_offset for each in results] == list(range(1, count + 1))
        words = str(error)
        assert f"in the log at offset {first.end_offset}" in words
        assert f"sync did not finish in {LIMIT_MS} ms" in words
        assert "again blindly" in words
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.status) == (words, error.status)
        assert [again.result] == results if count == 1 else list(again.result) == results
        until(lambda: store.flushed_offset == results[-1].end_offset)
        assert store.put(message(wait=False)).queue_offset == count + 1


@pytest.mark.parametrize("put", PUTS)
def test_with_on_late_return_the_status_tells(disk: SlowDisk, tmp_path: Path, put: str) -> None:
    count, call = PUTS[put]
    with open_slow(disk, tmp_path / "s", on_late="return") as store:
        disk.go.clear()
        found = call(store)
        results = [found] if isinstance(found, PutResult) else list(found)
        assert [each.status for each in results] == [PutStatus.FLUSH_DISK_TIMEOUT] * count
        disk.go.set()


def test_an_event_loop_gets_the_error(disk: SlowDisk, tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with lakelog.aio.AsyncStore(open_slow(disk, tmp_path / "s")) as store:
            disk.go.clear()
            try:
                producer = store.producer("t", queue=0)
                puts = store.put(message()), producer.put(BODY), store.put_batch([message()] * 2)
                return list(await asyncio.gather(*puts, return_exceptions=True))
            finally:
                disk.go.set()

    found = asyncio.run(run())
    assert [type(each) for each in found] == [NotDurable] * 3
    assert len(found[2].result) == 2


def test_a_batch_in_parts_is_in_the_log_whole(disk: SlowDisk, tmp_path: Path) -> None:
    """A late part does not keep the following ones out, and the result holds all."""
    with open_slow(disk, tmp_path / "s", on_late="raise") as store:
        store.put(message(wait=False))
        disk.go.clear()
        started = threading.Timer(20 * LIMIT_MS / 1000, disk.go.set)
        started.start()  # a roll syncs the full segment, which waits for the disk
        with pytest.raises(NotDurable) as caught:
            store.put_batch([message(bytes(10_000))] * 10)
        started.join()
        assert len(caught.value.result) == 10
        store.flush()
        assert [each.queue_offset for each in store.scan()] == list(range(11))


def test_a_settings_file_and_a_variable_set_it(
    disk: SlowDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKELOG_ON_LATE", "return")
    with open_slow(disk, tmp_path / "s") as store:
        disk.go.clear()
        assert store.put(message()).status is PutStatus.FLUSH_DISK_TIMEOUT
        disk.go.set()


def test_a_broker_answers_the_status(disk: SlowDisk, tmp_path: Path) -> None:
    async def run(store: Store) -> list[str]:
        def name(done: PutResult) -> str:
            return done.status.name

        disk.go.clear()
        later: Any = when_put(store.put_async(message()), name)
        found = [await later, name(await settled(store.put_async(message())))]
        disk.go.set()
        return found

    with open_slow(disk, tmp_path / "s") as store:
        assert asyncio.run(run(store)) == ["FLUSH_DISK_TIMEOUT"] * 2


@pytest.mark.parametrize("kind", ["put", "put_async", "put_batch", "put_batch_async"])
def test_missing_copies_raise(tmp_path: Path, kind: str) -> None:
    with lakelog.open(
        tmp_path / "s",
        segment_size_bytes=SEGMENT,
        replicator="rocketmq-ha",
        rocketmq_ha={"port": 0, "in_sync_replicas": 2},
    ) as store:
        count, call = PUTS[kind]
        with pytest.raises(NotDurable, match=r"SLAVE_NOT_AVAILABLE: .* too few slaves") as caught:
            call(store)
        assert caught.value.status is PutStatus.SLAVE_NOT_AVAILABLE
        assert len(list(store.scan())) == count
