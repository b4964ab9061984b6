"""Limits: a full disk, the length of files; files cut short, or not to be read, under a reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message, PutRefused, PutStatus, Store
from lakelog_testing.crash.opener import owned_by
from lakelog_testing.samples import copy_store
from tests.faults.checking import check_recovered, opened
from tests.faults.conftest import Workers
from tests.faults.disks import Disk, made, small
from tests.faults.shortage import short_files
from tests.faults.workload import SEGMENT_BYTES, message_of
from tests.support.smalldisk import need, tmpfs
from tests.support.working import working

WRITERS: Final = ("file", "mmap", "staged")
SETTINGS: Final = {"writer": "file", "flush": "none"}
DISK_BYTES: Final = 512 << 10
BALLAST_BYTES: Final = 128 << 10
LOGS_PER_PLACE: Final = 4
"""Each of the four stores that are open at a place may log a lack once."""


@pytest.mark.parametrize("writer", [*WRITERS, "direct"])
def test_a_limit_on_the_length_of_files(workers: Workers, tmp_path: Path, writer: str) -> None:
    path, settings = tmp_path / "store", {"writer": writer, "flush": "inline"}
    outcome = workers.run(path, settings, file_limit_bytes=SEGMENT_BYTES - 1)
    assert outcome.exit == 0
    assert not outcome.acks
    assert outcome.failures
    check_recovered(path, {**settings, "writer": "file"}, [])


# --- each resource at its end ---

FLUSH: Final = ("inline", "group-commit", "timed", "none")
PLACES: Final = {
    "descriptors": 41,
    "memory": 40,
    "threads": 14,
    "file-length": 18,
    "rights": 24,
    "tmpfs": 60,
    "ext4-of-pages": 60,
}
"""Behind so many places, everything works again.

On ext4 with blocks below a page SQLite, which keeps the state of groups, dies of SIGBUS on a full
disk: it allocates one byte of each page that it maps.
"""
BY_CHANCE: Final = ("descriptors", "memory")
"""Files are made ahead of need; any allocation may fail."""
SHORT: Final = (
    *(("descriptors", flush, 5) for flush in FLUSH[:3]),
    ("memory", "none", 3),
    ("threads", "group-commit", 5),
    ("file-length", "inline", 3),
    ("rights", "timed", 3),
    ("tmpfs", "inline", 3),
)
"""Tried by default."""
WHOLE: Final = [
    pytest.param(kind, flush, last, marks=pytest.mark.slow)
    for kind, last in PLACES.items()
    for flush in FLUSH
]


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users reach."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.both_ways
@pytest.mark.root
@pytest.mark.parametrize(("kind", "flush", "last"), [*SHORT, *WHOLE])
def test_all_works_again_after_a_lack(kind: str, flush: str, last: int, reachable: Path) -> None:
    """At each place: only errors of lakelog, nothing lost, no thread dies, nothing hangs."""
    is_disk = kind in ("tmpfs", "ext4-of-pages")
    if kind in ("threads", "rights") and os.geteuid():
        pytest.skip("another user is needed, whom only root may become")
    with small(kind, reachable) if is_disk else nullcontext(reachable) as folder:
        command = [str(folder / "s"), "disk" if is_disk else kind, flush, "0", str(last)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.shortage", *command],
            check=True,
            capture_output=True,
        )
    outcome = json.loads(done.stdout)
    assert not outcome["violations"]
    for_sure = "open: ThreadNotStarted" if kind == "threads" else "put_batch: PutRefused"
    assert outcome["failed"].get(for_sure) or kind in BY_CHANCE
    assert outcome["failed"]
    assert max(outcome["told"].values(), default=0) <= LOGS_PER_PLACE * last, "logged at each try"
    sys.stdout.write(f"{last} places, {outcome['operations']} operations, {outcome['failed']}\n")


# --- a write without room ---


PUTS_AT_THE_END: Final = """
import sys, lakelog
with lakelog.open(sys.argv[1], flush="inline", file={"map_below_bytes": 0}) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    store.put(lakelog.Message("t", b"of another", keys="last"))
"""


@pytest.mark.both_ways
@pytest.mark.parametrize("others", [0, 1])
def test_a_write_without_room_is_undone(others: int, tmp_path: Path) -> None:
    """No record of a refused batch is ever found, and all processes go on."""
    path, copy = tmp_path / "s", tmp_path / "killed"
    settings: dict[str, Any] = {"flush": "inline", "file": {"map_below_bytes": 0}}
    with ExitStack() as stack:
        store = stack.enter_context(lakelog.open(path, **settings))
        for _ in range(others):
            stack.enter_context(working([sys.executable, "-c", PUTS_AT_THE_END, str(path)]))
        store.put(Message("t", bytes(5000), keys="first"))
        with (
            short_files(2, path),
            pytest.raises(PutRefused, match=r"no room in the log.*File too large") as caught,
        ):
            store.put_batch([Message("t", b"xyz" * 500, keys=f"no{at}") for at in range(9)])
        assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        copy_store(path, copy)
        with short_files(2, path):
            store.put(Message("t", b"short", keys="second"))
        store.put_batch([Message("t", bytes(1500), keys=f"third{at}") for at in range(9)])
    must = ["first", "second", *(f"third{at}" for at in range(9)), *["last"] * others]
    for each, keys in ((path, must), (copy, must[:1])):
        with lakelog.open(each, **settings) as store:
            assert [message.properties["KEYS"] for message in store.scan()] == keys
            assert store.recovery is not None
            assert store.recovery.clean == (each == path)


def test_a_checkpoint_without_room_is_written_later(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "s", flush="inline") as store:
        store.put(Message("t", b"first"))
        checkpoint = owned_by(store).checkpoint
        with short_files(0, tmp_path), pytest.raises(OSError, match="File too large"):
            checkpoint.advance()
        store.put(Message("t", b"second"))
        checkpoint.advance()
        assert checkpoint.read().confirm_offset == store.flushed_offset


# --- a full disk ---


@pytest.mark.root
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_refuses_and_goes_on_once_there_is_room(tmp_path: Path, writer: str) -> None:
    settings = {"writer": writer, "flush": "inline"}
    with tmpfs(tmp_path, DISK_BYTES) as disk:
        (disk / "ballast").write_bytes(bytes(BALLAST_BYTES))
        path, keys = disk / "store", list[str]()
        with opened(path, settings) as store:
            keys += _fill(store, "before")
            (disk / "ballast").unlink()
            keys += _fill(store, "after")
            with pytest.raises(PutRefused):
                store.put(message_of("refused" * 5))
            _check_reading(store, keys)
            copy_store(path, tmp_path / "copy")  # as it is under its owner
        check_recovered(tmp_path / "copy", settings, keys)


def _fill(store: Store, word: str) -> list[str]:
    """Put until the disk is full; some must fit."""
    keys = list[str]()
    for at in range(10_000):
        status = _status_of(store, f"{word}-{at}")
        if status is not PutStatus.PUT_OK:
            assert status is PutStatus.CREATE_MAPPED_FILE_FAILED
            assert keys, "nothing fitted"
            return keys
        keys.append(f"{word}-{at}")
    raise AssertionError("the disk never filled")


def _status_of(store: Store, key: str) -> PutStatus:
    try:
        return store.put(message_of(key)).status
    except PutRefused as error:
        return error.status


def _check_reading(store: Store, keys: list[str]) -> None:
    assert [message.properties["KEYS"] for message in store.scan()] == keys


# --- what a reader meets ---


def test_a_segment_cut_short_under_a_reader(tmp_path: Path) -> None:
    path = _filled(tmp_path / "store")
    damage = list[object]()
    with lakelog.open(path, mode="read", segment_size_bytes=SEGMENT_BYTES) as reader:
        messages = reader.scan(on_damage=damage.append)
        first = next(messages)
        os.truncate(sorted((path / "commitlog").iterdir())[1], 100)
        rest = list(messages)
    assert damage
    found = {message.properties["KEYS"] for message in (first, *rest)}
    assert found < {f"k{at}" for at in range(40)}
    assert "k39" in found


@pytest.mark.root
def test_a_disk_that_cannot_be_read_is_a_clear_error(workers: Workers, tmp_path: Path) -> None:
    need("filefrag")
    with made("ext4-without-journal", tmp_path) as disk:
        path = _filled(disk.place / "store")
        _lose_the_log(disk, path)
        outcome = workers.run(path, {}, workload="read")
        assert outcome.exit == 0
        assert any("commitlog" in why and "Input/output error" in why for why in outcome.failures)
        assert not outcome.has("seen")
        outcome = workers.run(path, SETTINGS)
        assert outcome.exit == 0
        assert any("Input/output error" in why for why in outcome.failures)
        assert not outcome.acks


def _lose_the_log(disk: Disk, path: Path) -> None:
    """Cut the image off before the blocks of the log."""
    segments = sorted((path / "commitlog").iterdir())
    blocks = [_first_block(segment) for segment in segments]
    disk.unmount()
    disk.mount()  # nothing is in the page cache now
    os.truncate(disk.image, min(blocks) * 4096)


def _first_block(path: Path) -> int:
    """Where on its file system a file begins, in blocks of 4 KiB."""
    command = ["filefrag", "-b4096", "-v", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    line = next(each for each in text.splitlines() if each.strip().startswith("0:"))
    return int(line.split(":")[2].split("..")[0])


def _filled(path: Path, settings: Mapping[str, Any] = SETTINGS) -> Path:
    with opened(path, settings) as store:
        for at in range(40):
            store.put(message_of(f"k{at}"))
    return path
