"""Limits: a full disk, the length of files; files cut short, or not to be read, under a reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import PutRefused, PutStatus, Store
from lakelog_testing.samples import copy_store
from tests.faults.checking import check_recovered, opened
from tests.faults.conftest import Workers
from tests.faults.disks import Disk, made
from tests.faults.workload import SEGMENT_BYTES, message_of
from tests.support.smalldisk import need, tmpfs

WRITERS: Final = ("file", "mmap", "staged")
SETTINGS: Final = {"writer": "file", "flush": "none"}
DISK_BYTES: Final = 512 << 10
BALLAST_BYTES: Final = 128 << 10


@pytest.mark.parametrize("writer", [*WRITERS, "direct"])
def test_a_limit_on_the_length_of_files(workers: Workers, tmp_path: Path, writer: str) -> None:
    path, settings = tmp_path / "store", {"writer": writer, "flush": "inline"}
    outcome = workers.run(path, settings, file_limit_bytes=SEGMENT_BYTES - 1)
    assert outcome.exit == 0
    assert not outcome.acks
    assert outcome.failures
    check_recovered(path, {**settings, "writer": "file"}, [])


# --- descriptors ---


@pytest.mark.both_ways
@pytest.mark.parametrize(
    ("flush", "last"),
    [
        *(pytest.param(flush, 5) for flush in ("inline", "group-commit", "timed")),
        *(pytest.param(flush, 41, marks=pytest.mark.slow) for flush in ("inline", "group-commit")),
    ],
)
def test_operations_work_again_after_a_lack_of_descriptors(
    flush: str, last: int, tmp_path: Path
) -> None:
    """With few descriptors left, for each number of them: only errors of lakelog, nothing lost."""
    command = ["tests.faults.shortage", str(tmp_path / "s"), "descriptors", flush, "0", str(last)]
    done = subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    outcome = json.loads(done.stdout)
    assert not outcome["violations"]
    assert outcome["failed"]["put_batch: PutRefused"]
    sys.stdout.write(f"{last} places, {outcome['operations']} operations, {outcome['failed']}\n")


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
