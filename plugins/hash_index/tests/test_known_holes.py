"""Reports of RocketMQ's users about an index that did not agree with the log.

Numbers refer to apache/rocketmq's issues. There, an unclean restart deletes every index file
whose last entry is younger than the checkpoint's time of the index, and indexes again only the
records after the segment with which recovery begins.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelog
from core.tests.store.support import overwrite
from lakelog import Message
from lakelog.files.checkpoint import StoreCheckpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.store.open import Mode
from lakelog_doctor.check import check
from lakelog_hash_index import plugin, verify
from plugins.hash_index.tests.support import index_paths

pytestmark = pytest.mark.both_ways

SLOTS, ENTRIES = 50, 40
SIZES = {"slots": SLOTS, "entries": ENTRIES}
COUNT = 100


def opened(path: Path, mode: Mode = "write") -> lakelog.Store:
    return lakelog.open(
        path,
        mode=mode,
        plugins=[plugin],
        segment_size_bytes="16KiB",
        flush="none",
        hash_index=SIZES,
    )


def crashed(path: Path) -> list[int]:
    """A store of many segments and index files; the last index file was not full."""
    with opened(path) as store:
        results = [
            store.put(Message("t", b"." * 300, keys=["all", f"k{at}"])) for at in range(COUNT)
        ]
    (path / "abort").write_text("4711")
    return [each.physical_offset for each in results]


def assert_all_found(path: Path, offsets: list[int]) -> None:
    with opened(path) as store:
        assert store.query_offsets("t", "all", max_count=1 << 20) == offsets[::-1]
        for at, offset in enumerate(offsets):
            assert store.query_offsets("t", f"k{at}") == [offset]
    assert verify(path / "index", SLOTS, ENTRIES) == []


@pytest.mark.parametrize("number", [0, 3])
def test_3868_an_index_file_that_is_younger_than_the_checkpoint_loses_what_it_held(
    tmp_path: Path, number: int
) -> None:
    """Here such a restart deleted the file, and its older records are indexed again."""
    offsets = crashed(tmp_path)
    index_paths(tmp_path)[number].unlink()
    assert_all_found(tmp_path, offsets)


@pytest.mark.sample(4)
@pytest.mark.parametrize("left", ["clean", "abort"])
@pytest.mark.parametrize("length", [0, 1, 1000])
@pytest.mark.parametrize("number", [0, -1])
def test_an_index_file_was_emptied_or_cut(
    tmp_path: Path, number: int, length: int, left: str
) -> None:
    offsets = crashed(tmp_path)
    if left == "clean":
        (tmp_path / "abort").unlink()
    file = index_paths(tmp_path)[number]
    file.write_bytes(file.read_bytes()[:length])
    assert_all_found(tmp_path, offsets)


@pytest.mark.parametrize("left", ["clean", "abort"])
def test_the_index_reaches_further_than_the_log(tmp_path: Path, left: str) -> None:
    offsets = crashed(tmp_path)
    if left == "clean":
        (tmp_path / "abort").unlink()
    cut = offsets[-2]
    segment = tmp_path / "commitlog" / f"{cut // 16384 * 16384:020d}"
    segment.write_bytes(segment.read_bytes()[: cut % 16384].ljust(16384, b"\x00"))
    assert_all_found(tmp_path, offsets[:-2])


@pytest.mark.parametrize("index_ms", [0, 9_000_000_000_000])
def test_8007_the_last_index_file_is_kept_at_an_unclean_stop(tmp_path: Path, index_ms: int) -> None:
    offsets = crashed(tmp_path)
    before = index_paths(tmp_path)
    write_checkpoint(RealFileSystem(), tmp_path, StoreCheckpoint(0, 0, index_ms))
    assert_all_found(tmp_path, offsets)
    assert index_paths(tmp_path) == before


def test_a_second_crash_while_the_index_is_built_again(tmp_path: Path) -> None:
    """The checkpoint of the old full files does not cover files that were created again."""
    offsets = crashed(tmp_path)
    second = index_paths(tmp_path)[1]
    second.unlink()
    with opened(tmp_path):
        pass
    (tmp_path / "abort").write_text("4711")
    again = index_paths(tmp_path)[1]
    data = again.read_bytes()
    again.write_bytes(data[: 40 + 4 * SLOTS + 100] + bytes(40) + data[40 + 4 * SLOTS + 140 :])
    write_checkpoint(RealFileSystem(), tmp_path, StoreCheckpoint(0, 0, 0))
    assert_all_found(tmp_path, offsets)


def test_units_and_keys_of_a_damaged_record_are_no_problems(tmp_path: Path) -> None:
    """Units and keys that lead into damage of the log are not reported."""
    hurt = crashed(tmp_path)[70]
    overwrite(tmp_path, hurt + 100, b"?")
    report = lakelog.recover(
        tmp_path, plugins=[plugin], segment_size_bytes="16KiB", hash_index=SIZES
    )
    assert [each.offset for each in report.damage] == [hurt]
    assert list(check(tmp_path, plugins=[plugin], hash_index=SIZES)) == []
