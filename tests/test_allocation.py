"""A small store is small, a full disk refuses puts at any step, and RocketMQ opens any step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import lakelog
from lakelog import Message, PutRefused, PutStatus
from tests.faults import disks
from tests.support.killing import ROOT
from tests.support.rows import by_kind
from tests.support.smalldisk import tmpfs
from tests.support.twostores import JAVA, SEGMENT, SETTINGS, ours

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

WRITERS: Final = ("file", "mmap", "staged", "direct")
PAGE: Final = 4096
STEP: Final = 4 * PAGE
SIZE: Final = 16 * STEP
SMALL: Final = 4 << 20
PUTTER: Final = """
import json, sys
import lakelog
from lakelog import Message
path, settings, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
with lakelog.open(path, **settings) as store:
    for number in range(count):
        store.put(Message("orders", b"%06d" % number * 100, queue_id=0))
    store.flush()
    if sys.argv[4] == "killed":
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
"""


def log_bytes(path: Path) -> int:
    """Blocks that the log takes."""
    return sum(each.stat().st_blocks * 512 for each in (path / "commitlog").iterdir())


@pytest.mark.disk
@pytest.mark.parametrize("writer", WRITERS)
def test_a_default_store_with_two_messages_is_small(writer: str, tmp_path: Path) -> None:
    for count in (2, 4):
        with lakelog.open(tmp_path, writer=writer) as store:
            store.put(Message("t", b"one"))
            store.put(Message("t", b"two"))
            store.flush()
            assert log_bytes(tmp_path) <= SMALL
        assert log_bytes(tmp_path) <= SMALL
        with lakelog.open(tmp_path, writer=writer) as store:
            assert log_bytes(tmp_path) <= SMALL
            assert len(list(store.scan())) == count
    assert {each.stat().st_size for each in (tmp_path / "commitlog").iterdir()} == {1 << 30}


@contextmanager
def small_disk(writer: str, folder: Path) -> Iterator[Path]:
    """In memory, but where a writer needs more."""
    if writer == "direct":
        with disks.made("ext4", folder) as disk:
            yield disk.place
    else:
        with tmpfs(folder, 2 << 20) as place:
            yield place


class Eaten:
    """A file that takes all the room of a disk but so much."""

    def __init__(self, disk: Path) -> None:
        self.path = disk / "other"
        self.path.touch()

    def leave(self, free_bytes: int) -> None:
        """Give back, or take."""
        found = os.statvfs(self.path)
        size = self.path.stat().st_size + found.f_bfree * found.f_frsize - free_bytes
        with self.path.open("r+b") as file:
            file.truncate(size)
            while size > 0:  # a file system may keep some blocks for itself
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                    return
                except OSError:
                    size -= PAGE


@pytest.mark.root
@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_refuses_at_each_step(writer: str, preallocate: bool, tmp_path: Path) -> None:
    """Page by page through two segments, by single puts and large batches; never SIGBUS."""
    given: dict[str, Any] = {
        "writer": writer,
        "flush": "none",
        "dispatchers": [],
        "segment_size_bytes": SIZE,
        "allocation_step_bytes": STEP,
        "preallocate": preallocate,
    }
    bodies: list[bytes] = []
    with small_disk(writer, tmp_path) as disk:
        with lakelog.open(disk / "s", **given) as store:
            eaten, refused = Eaten(disk), 0

            def put(count: int, size: int) -> None:
                some = [b"%08d" % (len(bodies) + n) * (size // 8) for n in range(count)]
                store.put_batch([Message("t", each, queue_id=0) for each in some])
                bodies.extend(some)

            pages = 0
            while store.max_offset < 2 * SIZE + STEP:
                eaten.leave(pages % 7 * PAGE)
                pages += 1
                with pytest.raises(PutRefused, match="No space left") as caught:  # noqa: PT012  # which of the puts is refused is not known
                    for _ in range(10_000):
                        put(1, 800)
                assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
                with pytest.raises(PutRefused, match="No space left"):
                    put(40, 800)
                refused += 1
                store.flush()
                if writer == "direct":  # ext4 gives blocks back later
                    break
            assert refused >= (1 if writer == "direct" else 10)
            assert [bytes(each.body) for each in store.scan()] == bodies
            eaten.path.unlink()
            put(40, 800)
            put(1, 800)
        with lakelog.open(disk / "s", **given) as store:
            put(1, 800)
            assert [bytes(each.body) for each in store.scan()] == bodies


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("count", "end"),
    [(5, "closed"), (6, "killed"), (23, "closed"), (90, "killed"), (190, "killed")],
)
def test_the_real_store_goes_on_at_any_step(
    count: int, end: str, oracle: Oracle, tmp_path: Path
) -> None:
    """Near the end of the first step, right behind it, some steps later, and behind a roll."""
    path, settings = tmp_path / "store", {**SETTINGS, "allocation_step_bytes": PAGE}
    command = [sys.executable, "-c", PUTTER, str(path), json.dumps(settings), str(count), end]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == (-9 if end == "killed" else 0), done.stderr
    found_files = sorted((path / "commitlog").iterdir())
    assert {each.stat().st_size for each in found_files} == {SEGMENT}
    assert found_files[-1].stat().st_blocks * 512 < SEGMENT, "all of it is allocated"

    with lakelog.open(path, mode="read", **settings) as reader:
        before = [each.physical_offset for each in reader.scan()]
    assert len(before) == count
    oracle.fill(path, JAVA, count=40)
    found = by_kind(ours(path))["rec"]
    assert [each["physOffset"] for each in found][:count] == before
    assert len(found) == count + 40
    with lakelog.open(path, **settings) as store:
        store.put(Message("orders", b"again", queue_id=0))
        assert len(list(store.scan())) == count + 41
