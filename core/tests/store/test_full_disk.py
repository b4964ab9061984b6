"""A full disk, by a file system of a few hundred KiB: nothing is lost, and nothing is left over."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.tests.store.support import SEGMENT, a_record_of, bodies, fill, open_small
from lakelog import Message, PutRefused, PutStatus
from lakelog.errors import StoreError
from tests.support.smalldisk import tmpfs

pytestmark = [pytest.mark.root, pytest.mark.both_ways]
PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    with tmpfs(tmp_path, 16 * SEGMENT) as place:
        yield place


def leave(disk: Path, free_bytes: int) -> Path:
    """Fill the disk with another file, but for so many bytes."""
    other = disk / "other"
    found = os.statvfs(disk)
    with other.open("ab") as file:
        size = file.tell() + found.f_bavail * found.f_frsize - free_bytes
        os.posix_fallocate(file.fileno(), 0, size)
    return other


@pytest.mark.parametrize("free_pages", [0, 1, 2, 3, 5, 8, 12, 14])
def test_no_room_at_open(free_pages: int, disk: Path) -> None:
    path = disk / "store"
    other = leave(disk, free_pages * PAGE)
    with pytest.raises(StoreError, match=r"No space left.*; make room"):
        open_small(path)
    left = [each.name for each in path.rglob("*") if each.is_file()]
    assert "abort" not in left
    assert not [name for name in left if name.isdigit()]
    assert "shared" not in left, "a page that could not be allocated must not be mapped later"
    assert not [name for name in left if re.fullmatch(r"queues\.[0-9]+", name)]
    other.unlink()
    with open_small(path) as store:
        assert store.put(Message("t", b"later")).physical_offset == 0
    assert not list(path.rglob("*.tmp"))


def test_no_room_at_a_reopen(disk: Path) -> None:
    """The last segment was just filled: the next one cannot be made."""
    path = disk / "store"
    with open_small(path) as store:
        before = fill(store, 60)
    other = leave(disk, 0)
    try:
        with open_small(path) as store:
            assert len(list(store.scan())) == 60
    except StoreError:
        assert not (path / "abort").exists()
    other.unlink()
    with open_small(path) as store:
        assert store.max_offset == before[-1].end_offset
        assert fill(store, 1)[0].queue_offset == 60


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("free_pages", [0, 2])
def test_no_room_at_a_roll(free_pages: int, preallocate: bool, disk: Path) -> None:
    path = disk / "store"
    with open_small(path, preallocate=preallocate) as store:
        other = disk / "other"
        if not preallocate:
            leave(disk, free_pages * PAGE)
        put: list[bytes] = []

        def put_next() -> None:
            body = b"%05d" % len(put) * 100
            store.put(Message("t", body, queue_id=0))
            put.append(body)

        if preallocate:
            while len(list((path / "commitlog").iterdir())) < 2:  # made in the background
                if not put:
                    put_next()
                time.sleep(0.001)
            store.wait_dispatched()
            leave(disk, free_pages * PAGE)
        with pytest.raises(PutRefused, match="No space left") as caught:  # noqa: PT012  # which of the puts is refused is not known
            for _ in range(1000):
                put_next()
        assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        for _ in range(3):
            with pytest.raises(PutRefused):
                store.put(Message("t", b"x" * 4000))
            with pytest.raises(PutRefused):
                store.put_batch([Message("t", b"x" * 2000)] * 2)
            with pytest.raises(PutRefused):
                store.put_async(Message("t", b"x" * 4000)).result()
        assert bodies(store.scan()) == put
        assert all(file.stat().st_size == SEGMENT for file in (path / "commitlog").iterdir())
        assert not list((path / "lakelog" / "tmp").iterdir())
        other.unlink()
        result = store.put(Message("t", b"again" * 100, queue_id=0))
        assert result.queue_offset == len(put)
        assert result.physical_offset % SEGMENT == 0
    with open_small(path) as store:
        assert bodies(store.scan()) == [*put, b"again" * 100]


def test_a_small_message_still_fits_when_a_large_one_does_not(disk: Path) -> None:
    with open_small(disk / "store") as store:
        store.put(a_record_of(SEGMENT - 1000))
        store.wait_dispatched()
        leave(disk, 0)
        with pytest.raises(PutRefused):
            store.put(a_record_of(1000))
        assert store.put(a_record_of(992)).end_offset == SEGMENT - 8
