"""A write or sync that fails ends the writing for good: everybody hears of it, reading goes on."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.tests.registry.samples import plugin
from core.tests.store.faults import NthFails, in_the_log
from core.tests.store.support import (
    SEGMENT,
    FaultyFiles,
    a_store,
    bodies,
    fill,
    is_eio,
    open_small,
    read_small,
    tree,
)
from lakelog import Message, PutRefused, PutResult, PutStatus, Store
from lakelog.errors import StoreError, StoreFailed
from lakelog.files.checkpoint import StoreCheckpoint
from lakelog.format.layout import segment_name
from lakelog.recovery.clean_stop import CLEAN_STOP_FILE
from lakelog_testing.contracts.writer import open_in
from lakelog_testing.crash.opener import owned_by
from tests.support.sampling import at_every, every
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways

LARGE = bytes(4000)
MAPS_OF_A_SEGMENT = 2
"""Of the writer ``file``; each holds a descriptor while frames of a failure refer to it."""
PUTS: dict[str, Callable[[Store, Message], object]] = {
    "put": lambda store, message: store.put(message),
    "batch": lambda store, message: store.put_batch([message, message]),
    "async": lambda store, message: store.put_async(message).result(timeout=20),
}


def observer(told: list[Any]) -> Any:
    def failed(path: Path, cause: BaseException) -> None:
        told.append((path, cause))

    def closed() -> None:
        told.append("closed")

    return plugin(lakelog_store_failed=failed, lakelog_store_closed=closed)


@pytest.mark.parametrize("way", PUTS)
@pytest.mark.parametrize("fault", ["write_at", "sync"])
def test_a_store_that_failed(fault: str, way: str, tmp_path: Path) -> None:
    files, told = FaultyFiles(), list[Any]()
    given: dict[str, Any] = {"files": files, "plugins": [observer(told)]}
    if fault == "sync":
        given["flush"] = "inline"
    else:
        given["file"] = {"map_below_bytes": 0}
    store = open_small(tmp_path, **given)
    good = [each.physical_offset for each in fill(store, 5)]
    flushed = store.flushed_offset
    files.failing.add(fault)
    with pytest.raises(StoreFailed, match="reopen") as caught:
        PUTS[way](store, Message("t", LARGE))
    assert is_eio(caught.value.__cause__)
    files.failing.clear()  # the next sync would succeed, as on Linux, and prove nothing

    for each in PUTS.values():
        for message in (Message("t", b""), Message("t", b"", wait_store_ok=False)):
            with pytest.raises(PutRefused, match="the store failed") as refused:
                each(store, message)
            assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert [each.physical_offset for each in store.scan()][:5] == good
    assert store.look_up(good[2]).physical_offset == good[2]
    assert store.flushed_offset == flushed
    assert len(told) == 1
    assert told[0][0] == tmp_path
    assert is_eio(told[0][1])

    checkpoint = (tmp_path / "checkpoint").read_bytes()
    with pytest.raises(StoreFailed):
        store.close()
    store.close()
    assert told[1:] == ["closed"]
    assert (tmp_path / "abort").exists()
    assert (tmp_path / "checkpoint").read_bytes() == checkpoint
    with read_small(tmp_path) as reader:
        assert [each.physical_offset for each in reader.scan()][:5] == good
    with open_small(tmp_path) as recovered:
        assert [each.physical_offset for each in recovered.scan()][:5] == good
        recovered.put(Message("t", b""))


def test_a_write_that_fails_fails_the_other_processes_too(tmp_path: Path) -> None:
    """They would append behind bytes that may be missing."""
    files, through = FaultyFiles(), {"map_below_bytes": 0}
    store = open_small(tmp_path, files=files, file=through)
    other = open_small(tmp_path, file=through)
    assert other.put(Message("t", b"")).status is PutStatus.PUT_OK
    files.failing.add("write_at")
    with pytest.raises(StoreFailed):
        store.put(Message("t", LARGE))
    with pytest.raises(StoreFailed):
        other.put(Message("t", b""))
    for each in (other, store):
        with pytest.raises(StoreFailed):
            each.close()
    with open_small(tmp_path) as recovered:
        assert len(list(recovered.scan())) == 1


def test_the_end_of_a_segment_cannot_be_written(tmp_path: Path) -> None:
    """The next segment was ready; it is closed, and stays for the next open."""
    files = FaultyFiles()
    store = open_small(tmp_path, files=files, file={"map_below_bytes": 0})
    store.put(Message("t", bytes(SEGMENT // 2)))
    files.failing.add("write_at")
    with pytest.raises(StoreFailed):
        store.put(Message("t", bytes(SEGMENT // 2)))
    with pytest.raises(StoreFailed):
        store.close()
    names = sorted(each.name for each in (tmp_path / "commitlog").iterdir())
    assert names == [segment_name(0), segment_name(SEGMENT)]
    held = [each for each in open_in(tmp_path) if segment_name(SEGMENT) in each]
    assert len(held) <= MAPS_OF_A_SEGMENT, "the file itself is open, too"
    with open_small(tmp_path) as recovered:
        fill(recovered, 100)
        assert len(list(recovered.scan())) == 101


def test_a_sync_that_fails_at_the_close(tmp_path: Path) -> None:
    files, told = FaultyFiles(), list[Any]()
    store = open_small(tmp_path, files=files, plugins=[observer(told)])
    fill(store, 5)
    files.failing.add("sync")
    with pytest.raises(StoreFailed):
        store.close()
    assert (tmp_path / "abort").exists()
    assert (tmp_path / "checkpoint").read_bytes() == bytes(4096)
    assert not (tmp_path / "lakelog" / CLEAN_STOP_FILE).exists()
    assert len(told) == 2
    with read_small(tmp_path) as reader:
        assert len(list(reader.scan())) == 5


def ahead_of_need(path: Path, fault: str, code: int, told: list[Any]) -> tuple[Store, NthFails]:
    files = NthFails()
    store = open_small(path, files=files, preallocate=True, plugins=[observer(told)])
    following = segment_name(SEGMENT)  # the first segment gets its blocks from the same put
    files.arm(
        1,
        code,
        lambda call, at: (
            call == fault and in_the_log(call, at) and (call != "allocate" or at.name == following)
        ),
    )
    fill(store, 1)
    assert files.fired.wait(20)
    return store, files


@pytest.mark.parametrize("fault", ["allocate", "sync", "rename", "sync_dir"])
def test_a_disk_that_fails_ahead_of_need(fault: str, tmp_path: Path) -> None:
    """Nobody waits for the next segment yet: the store must not pass over it all the same."""
    told: list[Any] = []
    store, _ = ahead_of_need(tmp_path, fault, errno.EIO, told)
    until(lambda: told, "no event of a failure")
    with pytest.raises(PutRefused, match="the store failed"):
        store.put(Message("t", b""))
    assert len(list(store.scan())) == 1
    with pytest.raises(StoreFailed):
        store.close()
    assert is_eio(told[0][1])
    assert len(told) == 2
    with open_small(tmp_path) as recovered:
        assert len(list(recovered.scan())) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_ahead_of_need(code: int, tmp_path: Path) -> None:
    """Nobody hears of it before the roll, where it is tried again."""
    told: list[Any] = []
    store, files = ahead_of_need(tmp_path, "allocate", code, told)
    results = fill(store, 31)
    assert results[-1].end_offset < SEGMENT
    files.arm(1, code, lambda call, _: call == "allocate")
    with pytest.raises(PutRefused) as caught:
        store.put(Message("t", LARGE))
    assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert store.put(Message("t", LARGE)).physical_offset == SEGMENT
    store.close()
    assert told == ["closed"]


@pytest.mark.parametrize("fault", ["sync", "rename", "sync_dir", "allocate"])
def test_a_segment_that_cannot_be_made_in_time(fault: str, tmp_path: Path) -> None:
    files = NthFails()
    store = open_small(tmp_path, files=files, flush="inline", dispatchers=[])
    fill(store, 32)
    files.arm(1, errno.EIO, lambda call, _: call == fault)
    with pytest.raises(StoreFailed) as caught:
        store.put(Message("t", LARGE))
    assert is_eio(caught.value.__cause__)
    with pytest.raises(PutRefused, match="the store failed"):
        store.put(Message("t", b""))
    with pytest.raises(StoreFailed):
        store.close()
    with open_small(tmp_path) as recovered:
        assert len(list(recovered.scan())) == 32


def test_a_checkpoint_that_cannot_be_synced(tmp_path: Path) -> None:
    """Nothing that it claims could be believed: it is frozen, and the store fails."""
    files, told = NthFails(), list[Any]()
    store = open_small(tmp_path, files=files, flush="inline", plugins=[observer(told)])
    fill(store, 5)
    files.arm(1, errno.EIO, lambda call, at: call == "sync" and at.name == "checkpoint")
    with pytest.raises(OSError, match="fails"):
        owned_by(store).checkpoint.advance()
    assert is_eio(told[0][1])
    owned_by(store).checkpoint.advance(StoreCheckpoint(physic_timestamp_ms=1 << 60))
    assert owned_by(store).checkpoint.read().physic_timestamp_ms < 1 << 60
    with pytest.raises(PutRefused, match="the store failed"):
        store.put(Message("t", b""))
    with pytest.raises(StoreFailed):
        store.close()


def work(store: Store) -> Iterator[PutResult]:
    for number in range(20):
        body = b"%02d" % number + bytes(900)
        yield store.put(Message("t", body, queue_id=0))
        yield from store.put_batch([Message("t", body, queue_id=0)] * 2)
        yield store.put_async(Message("t", body, queue_id=0)).result(timeout=20)


def run_until_it_fails(path: Path, nth: int, code: int) -> bool:
    """Whether the ``nth`` call failed; whatever was acknowledged is there after that."""
    files, acknowledged = NthFails(), list[PutResult]()
    given: dict[str, Any] = {"flush": "inline", "file": {"map_below_bytes": 0}}
    store = open_small(path, files=files, preallocate=bool(nth % 2), **given)
    files.arm(nth, code, in_the_log)
    try:
        for result in work(store):
            assert result.status is PutStatus.PUT_OK
            acknowledged.append(result)
            refusal = owned_by(store).health.refusal
            assert refusal is None or nth % 2, "only a thread's failure comes between two puts"
        store.close()
    except (StoreError, PutRefused):
        with suppress(StoreError):
            store.close()
    assert (path / "abort").exists() == (owned_by(store).health.failure is not None)
    with open_small(path) as recovered:
        found = {each.physical_offset for each in recovered.scan()}
    assert {each.physical_offset for each in acknowledged} <= found
    assert len(found) - len(acknowledged) <= 2, "one batch of two may be there all the same"
    return files.fired.is_set()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@at_every(31)
def test_every_call_fails_once(stride: int, code: int, tmp_path: Path) -> None:
    for nth in every(stride, first=1):
        if not run_until_it_fails(tmp_path / str(nth), nth, code):
            break
    assert nth > 80


def test_a_roll_whose_segment_cannot_be_mapped(tmp_path: Path) -> None:
    """It is tried again at the next put, and leaves no descriptor behind."""
    files = FaultyFiles()
    with open_small(tmp_path, files=files, dispatchers=[]) as store:
        fill(store, 32)
        before = open_in(tmp_path)
        files.failing.add("map")
        for _ in range(3):
            with pytest.raises(PutRefused) as caught:
                store.put(Message("t", LARGE))
            assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert len(open_in(tmp_path)) <= len(before) + 1, "the segment waits for the next try"
        files.failing.clear()
        assert store.put(Message("t", LARGE)).physical_offset == SEGMENT
    with open_small(tmp_path) as store:
        assert len(list(store.scan())) == 33


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENOMEM])
def test_a_folder_that_may_not_be_opened_for_a_sync(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sync was tried, and a later one covers the name: only the put is refused."""
    opens = os.open

    def fails(path: Any, *arguments: Any, **more: Any) -> int:
        if path == tmp_path / "commitlog":
            raise OSError(code, os.strerror(code), str(path))
        return opens(path, *arguments, **more)

    with open_small(tmp_path, flush="inline", preallocate=False, dispatchers=[]) as store:
        fill(store, 32)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", fails)
            with pytest.raises(PutRefused, match=os.strerror(code)):
                store.put(Message("t", LARGE))
        assert store.put(Message("t", LARGE)).physical_offset == SEGMENT
    with open_small(tmp_path) as store:
        assert len(list(store.scan())) == 33


def test_an_opening_that_fails_is_undone(tmp_path: Path) -> None:
    a_store(tmp_path, 50)
    before = tree(tmp_path)
    files = FaultyFiles()
    files.failing.add("read_at")
    with pytest.raises(StoreError, match="disk fails"):
        open_small(tmp_path, files=files)
    assert tree(tmp_path) == before
    gc.collect()  # the error held the file that was being read
    assert open_in(tmp_path) == []
    open_small(tmp_path).close()


def test_a_write_that_hangs(tmp_path: Path) -> None:
    """Other puts are refused after a while, without harm; the one that hangs goes on."""
    with open_small(tmp_path, os_page_cache_busy_timeout_ms=100) as store:
        active, hang, hangs = owned_by(store).segments.active, threading.Event(), threading.Event()
        write = active.write

        def slow(position: int, data: Any) -> None:
            hangs.set()
            hang.wait(20)
            write(position, data)

        active.write = slow  # type: ignore[method-assign]  # a slow write stands in for it
        with ThreadPoolExecutor(4) as pool:
            first = pool.submit(store.put, Message("t", b"first"))
            hangs.wait(20)
            for way in PUTS.values():
                with pytest.raises(PutRefused, match="os_page_cache_busy_timeout_ms") as caught:
                    way(store, Message("t", b"refused"))
                assert caught.value.status is PutStatus.OS_PAGE_CACHE_BUSY
            assert list(store.scan()) == []
            hang.set()
            assert first.result().status is PutStatus.PUT_OK
        store.put(Message("t", b"second"))
        assert bodies(store.scan()) == [b"first", b"second"]
