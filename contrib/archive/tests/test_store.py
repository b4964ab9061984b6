"""A store whose old segments are archived: deleted messages are read as before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import Message
from lakelog.errors import SettingsError
from lakelog.format.record_batch import Damage
from lakelog_archive.plugin import ArchivePlugin
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.task import first_offset
from lakelog_testing import SurplusCleaner
from lakelog_testing.samples import copy_store

SEGMENT = 64 << 10
COUNT = 300


def opened(path: Path, mode: Any = "write", **more: Any) -> lakelog.Store:
    given = {"plugins": [ArchivePlugin(), SurplusCleaner()], "cleaner": "surplus", **more}
    return lakelog.open(path, mode=mode, segment_size_bytes=SEGMENT, flush="inline", **given)


def archived(path: Path, mode: Any = "write") -> lakelog.Store:
    return opened(path, mode, archive="fsspec", fsspec={"url": str(path.with_name("old"))})


def fill(owner: lakelog.Store) -> None:
    owner.put_batch([Message("t", b"%d" % n * 200, queue_id=0) for n in range(COUNT)])
    assert owner.wait_dispatched()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of some segments, all but the last one of which are in the archive alone."""
    path = tmp_path / "s"
    with archived(path) as owner:
        fill(owner)
        copy_store(path, tmp_path / "before")
        report = owner.delete_expired()
        assert report is not None
        assert len(report.deleted) > 1
        assert report.kept is None
    return path


@pytest.fixture
def before(store: Path) -> list[Any]:
    """The messages of the store before segments were archived."""
    with lakelog.open(store.with_name("before"), mode="read", segment_size_bytes=SEGMENT) as old:
        return list(old.scan())


@pytest.mark.parametrize("mode", ["write", "read"])
def test_old_offsets_are_served_and_a_scan_goes_from_the_archive_into_the_log(
    store: Path, before: list[Any], mode: str
) -> None:
    assert len(before) == COUNT
    with archived(store, mode) as now:
        assert now.min_offset > 0
        for each in (before[0], before[COUNT // 2], before[-1]):
            assert now.look_up(each.physical_offset) == each
        assert list(now.scan(start=0)) == before
        middle = before[COUNT // 3]
        assert list(now.scan(start=middle.physical_offset)) == before[COUNT // 3 :]
        kept = [each for each in before if each.physical_offset >= now.min_offset]
        assert list(now.scan()) == kept
        end = before[9].physical_offset
        assert list(now.scan(start=0, end=end)) == before[:9]


def test_a_segment_that_the_archive_lost_is_told(store: Path, before: list[Any]) -> None:
    (folder,) = store.with_name("old").iterdir()
    for each in ("commitlog", "manifest"):
        (folder / each / f"{SEGMENT:020d}").unlink()
    with archived(store, "read") as now:
        damage = [each for each in now.scan_pieces(0, None) if isinstance(each, Damage)]
        assert [(each.offset, each.end_offset) for each in damage] == [(SEGMENT, 2 * SEGMENT)]


def test_the_archive_is_a_commit_log_by_itself(store: Path, before: list[Any]) -> None:
    (folder,) = store.with_name("old").iterdir()
    with lakelog.open(folder, mode="read", segment_size_bytes=SEGMENT) as kept:
        found = list(kept.scan())
    assert found == before[: len(found)]
    assert len(found) > COUNT // 2


def test_what_cannot_be_archived_stays_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "s"
    (tmp_path / "old").write_bytes(b"a file is in the way")
    with archived(path) as owner:
        fill(owner)
        report = owner.delete_expired()
        assert report is not None
        assert report.deleted == ()
        assert report.kept is not None
        assert "archive" in report.kept.reason.lower()
        assert owner.min_offset == 0
        os.unlink(tmp_path / "old")
        again = owner.delete_expired()
        assert again is not None
        assert again.deleted


def test_a_store_that_is_opened_again_without_it_archives_no_more(tmp_path: Path) -> None:
    plugins = [ArchivePlugin(), SurplusCleaner()]
    url = {"url": str(tmp_path / "old")}
    opened(tmp_path / "s", plugins=plugins, archive="fsspec", fsspec=url).close()
    with opened(tmp_path / "s", plugins=plugins) as owner:
        fill(owner)
        report = owner.delete_expired()
    assert report is not None
    assert report.deleted
    assert not (tmp_path / "old").exists()


def test_bad_settings_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    for url in ("", "nowhere://x"):
        with pytest.raises(SettingsError, match="url"):
            opened(tmp_path / "s", archive="fsspec", fsspec={"url": url})
    assert not (tmp_path / "s").exists()


def test_a_dispatcher_goes_on_from_the_archive(tmp_path: Path) -> None:
    """Its position is before the start of the log, and no message is missing."""
    path = tmp_path / "s"
    with archived(path) as owner:
        fill(owner)
        assert owner.delete_expired().deleted
        second = next(iter(owner.scan(start=0))).size
        assert owner.oldest_offset == 0 < second < owner.min_offset
        assert first_offset(owner, Position(0, second), "t") == second
    with opened(path) as owner, pytest.raises(Exception, match="deleted before they landed"):
        first_offset(owner, Position(0, second), "t")
