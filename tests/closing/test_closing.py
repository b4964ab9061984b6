"""After a close nothing of a store is open, without the collector: no descriptor, map or thread."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
import lakelog.aio
from lakelog import Message, Store
from lakelog.errors import StoreError, StoreLocked
from lakelog.format.record_batch import RecordBatch
from lakelog.log.segments import Segments
from lakelog_testing.contracts.writer import open_in
from tests.support.smalldisk import tmpfs
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways

SEGMENT: Final = 1 << 16
WRITERS: Final = ("file", "mmap", "staged", "direct")
FLUSHES: Final = ("none", "inline", "timed", "group-commit")
SMALL: Final[dict[str, Any]] = {
    "segment_size_bytes": SEGMENT,
    "hash_index": {"slots": 50, "entries": 60},
    "consume-queue": {"file_entries": 64},
    "staged": {"lock_memory": False},
}


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def fill(store: Store, count: int = 150) -> None:
    """Several segments, queue files and index files."""
    for at in range(count):
        store.put(Message("t", b"x" * 1000, keys=f"k{at}", tags="a", queue_id=0))
    assert store.wait_dispatched()


def use(store: Store) -> None:
    """Every way to read, of which some stay unfinished."""
    assert len(store.get("t", 0, 0, 32).messages) == 32
    assert store.get("t", 0, 100, 1, tags="a").messages
    assert store.query("t", "k5")
    assert store.offset_by_time("t", 0, 1) == 0
    store.get_columns("t", 0, 0, 10)
    store.look_up(0)
    next(store.scan())
    next(store.scan_pieces())
    next(store.read("t", 0))
    assert store.queues()
    _ = store.flushed_offset, store.dispatch_lag


def left(path: Path, pid: int | None = None) -> list[str]:
    """Open and mapped files in a folder."""
    maps = Path(f"/proc/{pid or os.getpid()}/maps").read_text().splitlines()
    mapped = [each.split(None, 5)[-1] for each in maps]
    return open_in(path, pid) + [each for each in mapped if each.startswith(f"{path}/")]


def check(path: Path, before: set[threading.Thread]) -> None:
    assert left(path) == []
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.disk
def test_a_closed_owner(
    tmp_path: Path, threads: set[threading.Thread], writer: str, flush: str
) -> None:
    with lakelog.open(tmp_path, writer=writer, flush=flush, **SMALL) as store:
        fill(store)
        use(store)
        messages, piece = list(store.scan()), next(store.scan_pieces())
    check(tmp_path, threads)
    assert isinstance(piece, RecordBatch)
    assert messages[0].body == piece.message(0).body == b"x" * 1000
    assert store.flushed_offset == messages[-1].physical_offset + messages[-1].size


def test_a_closed_reader(tmp_path: Path, threads: set[threading.Thread]) -> None:
    with lakelog.open(tmp_path, **SMALL) as owner:
        fill(owner)
        with lakelog.open(tmp_path, mode="read", **SMALL) as store:
            use(store)
            assert not store.wait_flushed(1 << 40, timeout_ms=1)
    check(tmp_path, threads)
    with lakelog.open(tmp_path, mode="read", **SMALL) as store:
        use(store)
    check(tmp_path, threads)


def test_a_closed_member(tmp_path: Path, threads: set[threading.Thread]) -> None:
    with lakelog.open(tmp_path, flush="group-commit", **SMALL) as owner:
        fill(owner)
        before = sorted(left(tmp_path))
        with lakelog.open(tmp_path, flush="group-commit", **SMALL) as store:
            assert store.role == "attach"
            fill(store, 1)
            use(store)
        assert sorted(set(left(tmp_path)) - set(before)) == []
        with pytest.raises(StoreLocked):
            lakelog.open(tmp_path, mode="exclusive", **SMALL)
        assert len(left(tmp_path)) <= len(before) + 1  # its own segment of the log, now sealed
    check(tmp_path, threads)


def test_consumers_groups_and_subscriptions(tmp_path: Path, threads: set[threading.Thread]) -> None:
    with lakelog.open(tmp_path, **SMALL) as store:
        fill(store)
        consumer = store.consumer("g", "t", start="earliest", commit="batch")
        assert next(iter(consumer)).body
        member = store.subscribe("h", "t", start="earliest")
        for message in member.poll(wait_ms=20_000):
            member.ack(message)
    check(tmp_path, threads)


async def _aio(path: Path) -> None:
    async with lakelog.aio.open(path, **SMALL) as store:
        await store.put(Message("t", b"x", keys="k", queue_id=0))
        assert await store.wait_dispatched()
        assert (await store.get("t", 0, 0, 1)).messages
        assert await store.query("t", "k")


def test_a_closed_store_of_an_event_loop(tmp_path: Path) -> None:
    import asyncio

    asyncio.run(_aio(tmp_path))
    assert left(tmp_path) == []


def test_an_open_that_fails(
    tmp_path: Path, threads: set[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakelog.open(tmp_path, **SMALL) as store:
        fill(store)

    def broken(_self: Segments) -> None:
        raise StoreError("it fails", path=tmp_path)

    with monkeypatch.context() as patched:
        patched.setattr(Segments, "prepare_next", broken)
        with pytest.raises(StoreError, match="it fails") as caught:
            lakelog.open(tmp_path, **SMALL)
    check(tmp_path, threads)
    del caught


def test_many_opens_with_few_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lakelog.open(tmp_path, **SMALL).close()
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    try:
        for _ in range(60):
            with lakelog.open(tmp_path, **SMALL) as store:
                store.put(Message("t", b"x", queue_id=0))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) <= used


def test_an_open_segment_has_one_descriptor(tmp_path: Path) -> None:
    with lakelog.open(tmp_path, **SMALL) as store:
        store.put(Message("t", b"x", queue_id=0))
        assert open_in(tmp_path).count(str(tmp_path / "commitlog" / f"{0:020}")) == 1


@pytest.mark.parametrize("mode", ["write", "read"])
def test_a_file_system_can_be_unmounted_at_once(tmp_path: Path, mode: Any) -> None:
    with tmpfs(tmp_path, 64 << 20) as disk:
        with lakelog.open(disk / "s", **SMALL) as store:
            fill(store)
        with lakelog.open(disk / "s", mode=mode, **SMALL) as store:
            use(store)
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("mode", ["write", "read"])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.disk
def test_a_forked_child_has_nothing_of_its_parents_store(
    tmp_path: Path, writer: str, mode: Any
) -> None:
    with lakelog.open(tmp_path, writer=writer, **SMALL) as store:
        fill(store)
        if mode == "write":
            use(store)
    with lakelog.open(tmp_path, mode=mode, writer=writer, **SMALL) as store:
        use(store)
        if mode == "write":
            fill(store, 1)
        pid = os.fork()
        if not pid:
            signal.pause()
            os._exit(0)
        with closing(_Child(pid)):
            until(lambda: left(tmp_path, pid) == [])
            use(store)
            if mode == "write":
                store.put(Message("t", b"behind the fork", queue_id=0))


class _Child:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def test_two_stores_of_one_process_are_apart(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "a", **SMALL) as store:
        fill(store, 10)
        with lakelog.open(tmp_path / "b", **SMALL) as other:
            fill(other, 10)
        store.put(Message("t", b"x", queue_id=0))
        assert len(list(store.scan())) == 11
