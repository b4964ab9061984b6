"""The simulated file system: states of files and names that a crash may and may not leave."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from lakelog.files.filesystem import read_file
from lakelog_testing.crash import Image, SimFileSystem, all_lost, images, nothing_lost

SECTORS = 8
PAGE_BYTES = 4096


@pytest.fixture
def system(tmp_path: Path) -> SimFileSystem:
    return SimFileSystem(tmp_path)


def written(system: SimFileSystem, name: str, content: bytes, *, sync: bool) -> Path:
    path = system.root / name
    file = system.open(path, write=True, create=True)
    file.write_at(0, content)
    if sync:
        file.sync()
    file.close()
    return path


def left(system: SimFileSystem, count: int = 400) -> list[Image]:
    """Images of a crash at this moment."""
    system.point("now")
    return list(images(system.points[-1], Random(1), count))


def contents(found: list[Image], name: str) -> set[bytes | None]:
    return {image.files.get(name) for image in found}


def test_a_sync_of_a_file_does_not_keep_its_name(system: SimFileSystem) -> None:
    written(system, "a", b"1", sync=True)
    assert contents(left(system), "a") == {None, b"1"}
    system.sync_dir(system.root)
    assert contents(left(system), "a") == {b"1"}


def test_a_sync_of_a_folder_does_not_keep_content(system: SimFileSystem) -> None:
    written(system, "a", b"1", sync=False)
    system.sync_dir(system.root)
    assert contents(left(system), "a") == {b"", b"\0", b"1"}


def test_each_page_may_be_any_of_its_versions_and_torn_at_sectors(system: SimFileSystem) -> None:
    path = written(system, "a", b"1" * 8192, sync=True)
    system.sync_dir(system.root)
    with path.open("r+b") as file:  # bypasses the file system, as a store through a map does
        file.write(b"2" * 8192)
        file.flush()
        system.point("")
        file.seek(0)
        file.write(b"3" * 4096)
    found = contents(left(system, 3000), "a")
    whole = {each[:1] + each[4096:4097] for each in found if each and len({*each[:4096]}) == 1}
    assert {b"11", b"21", b"31", b"12", b"22", b"32"} <= whole
    for each in filter(None, found):
        for at in range(0, 8192, 512):
            assert len({*each[at : at + 512]}) == 1
        assert b"3" not in each[4096:]
    assert any(each and b"1" in each[:4096] and b"3" in each[:4096] for each in found)


def test_a_rename_is_all_or_nothing(system: SimFileSystem) -> None:
    written(system, "a", b"1", sync=True)
    written(system, "b", b"2", sync=True)
    system.sync_dir(system.root)
    system.rename(system.root / "a", system.root / "b")
    assert {tuple(sorted(image.files.items())) for image in left(system)} == {
        (("a", b"1"), ("b", b"2")),
        (("b", b"1"),),
    }


def test_changes_of_one_name_keep_their_order_others_none(system: SimFileSystem) -> None:
    for name in ("a", "b"):
        written(system, name, b"", sync=True)
    system.unlink(system.root / "a")
    written(system, "a", b"", sync=True)
    found = {frozenset(image.files) for image in left(system)}
    assert found == {frozenset(each) for each in ("", "a", "b", "ab")}


@pytest.mark.parametrize("change", [nothing_lost, all_lost])
def test_a_new_folder_goes_with_all_that_is_in_it(
    system: SimFileSystem, change: Callable[..., Image]
) -> None:
    system.make_dir(system.root / "d", durable=False)
    written(system, "d/a", b"1", sync=True)
    system.sync_dir(system.root / "d")
    image = change(system.freeze())
    assert (image.folders, image.files) in (((), {}), (("d",), {"d/a": b"1"}))
    assert bool(image.folders) == (change is nothing_lost)


def test_what_is_cut_off_does_not_come_back_with_a_later_length(system: SimFileSystem) -> None:
    path = written(system, "a", b"1" * 5000, sync=True)
    system.sync_dir(system.root)
    file = system.open(path, write=True)
    file.truncate(10)
    file.allocate(5000)
    file.close()
    for each in filter(None, contents(left(system), "a")):
        assert each in (b"1" * 5000, b"1" * 10, b"1" * 10 + bytes(4990))


def test_what_is_stored_while_a_sync_runs_is_not_durable(system: SimFileSystem) -> None:
    path = written(system, "a", b"1", sync=True)
    system.sync_dir(system.root)
    file = system.open(path, write=True)
    file.write_at(0, b"2")
    contents_of = file._contents  # type: ignore[attr-defined]  # begins and ends the sync by hand
    durable = contents_of.begin_sync()
    file.write_at(0, b"3")
    contents_of.end_sync(durable)
    assert contents(left(system), "a") == {b"2", b"3"}


def test_a_failed_sync_leaves_pages_behind_for_good(system: SimFileSystem) -> None:
    path = written(system, "a", b"1", sync=True)
    system.sync_dir(system.root)
    file = system.open(path, write=True)
    file.write_at(0, b"2")
    system.fail_sync_at = system.syncs + 1
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert b"1" in contents(left(system), "a")


def test_names_that_change_past_the_seam_are_told(system: SimFileSystem) -> None:
    written(system, "a", b"1", sync=True)
    assert system.leaks() == []
    os.unlink(system.root / "a")
    (system.root / "b").mkdir()
    assert system.leaks() == ["a", "b"]


def test_after_a_kill_what_was_not_durable_still_is_not(
    system: SimFileSystem, tmp_path: Path
) -> None:
    written(system, "a", b"1", sync=True)
    system.sync_dir(system.root)
    written(system, "a", b"2", sync=False)
    written(system, "b", b"3", sync=True)
    state = system.freeze()
    nothing_lost(state).write_out(tmp_path / "next")
    after = SimFileSystem(tmp_path / "next", after=state)
    assert read_file(after, after.root / "a") == b"2"
    assert all_lost(after.freeze()).files == {"a": b"1"}
    assert nothing_lost(after.freeze()).files == {"a": b"2", "b": b"3"}


def test_what_is_mapped_to_be_written_without_blocks_is_noted(system: SimFileSystem) -> None:
    path = written(system, "a", b"1", sync=True)
    file = system.open(path, write=True)
    file.truncate(5 * PAGE_BYTES)
    file.allocate(PAGE_BYTES, 2 * PAGE_BYTES)
    file.map(PAGE_BYTES, writable=True)
    file.map(5 * PAGE_BYTES, writable=False)
    assert system.trespasses == []
    file.map(2 * PAGE_BYTES, writable=True, position=2 * PAGE_BYTES)
    assert system.trespasses == ["a: mapped to be written, but not allocated: pages [3]"]


def test_a_store_without_blocks_is_noted(system: SimFileSystem) -> None:
    path = written(system, "a", b"1", sync=True)
    file = system.open(path, write=True)
    file.truncate(3 * PAGE_BYTES)
    with mmap.mmap(file.fileno(), 3 * PAGE_BYTES) as past_the_seam:
        past_the_seam[0] = past_the_seam[2 * PAGE_BYTES] = 2
        system.freeze()
    assert system.trespasses == ["a: stored to, but not allocated: pages [2]"]
