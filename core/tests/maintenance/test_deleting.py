"""The maintenance of a store deletes what its cleaner chose, in each role; the clock is a fake."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog
from lakelog.errors import OffsetOutOfRange, StoreReadOnly
from lakelog.hooks import Context, DiskReport, DiskState, DiskWatcher, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl
from lakelog_testing import FakeClock, SurplusCleaner

STORE_SEGMENT_BYTES = 16 << 10


@attrs.define(eq=False)
class Witness:
    """A disk watcher that reports what a test has set, and a plugin that notes deletions.

    :ivar kept: start offset of a segment that may not be deleted
    """

    state: DiskState = DiskState.OK
    kept: int = -1
    deleting: list[int] = attrs.field(factory=list)
    deleted: list[int] = attrs.field(factory=list)

    def observe(self, paths: Sequence[Path]) -> DiskReport:
        assert all(each.exists() for each in paths)
        return DiskReport(self.state, (), "of a test")

    @hookimpl
    def lakelog_disk_watchers(self) -> list[Factory]:
        return [Factory(Kind.DISK_WATCHER, "witness", NoSettings, self._itself)]

    def _itself(self, _settings: NoSettings, _context: Context) -> DiskWatcher:
        return self

    @hookimpl
    def lakelog_segment_deleting(self, path: Path, start_offset: int) -> None:
        assert path.exists()
        self.deleting.append(start_offset)
        if start_offset == self.kept:
            raise RuntimeError("still needed")

    @hookimpl
    def lakelog_segment_deleted(self, path: Path, start_offset: int) -> None:
        assert not path.exists()
        self.deleted.append(start_offset)


@pytest.fixture
def witness() -> Witness:
    """Watches the disks, and notes deletions."""
    return Witness()


def opened(path: Path, witness: Witness, **arguments: Any) -> lakelog.Store:
    """Open a small store whose cleaner keeps one sealed segment; no periodic round runs."""
    given = {
        "plugins": [SurplusCleaner(keep=1), witness],
        "cleaner": "surplus",
        "disk_watcher": "witness",
        "segment_size_bytes": STORE_SEGMENT_BYTES,
        "clock": FakeClock(),
    }
    return lakelog.open(path, **{**given, **arguments})


def fill(store: lakelog.LogStore, segments: int = 4) -> None:
    """Put messages for about this many segments, and wait until they are dispatched."""
    for _ in range(segments * 16):
        store.put(lakelog.Message("t", bytes(1000)))
    assert store.wait_dispatched()


def _starts(path: Path) -> list[int]:
    return sorted(int(each.name) for each in (path / "commitlog").iterdir() if each.name.isdigit())


def _files(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_it_deletes_from_the_front_what_the_cleaner_chose(tmp_path: Path, witness: Witness) -> None:
    with opened(tmp_path, witness) as store:
        fill(store)
        first, here = _starts(tmp_path), store.min_offset
        report = store.delete_expired()
        assert [each.start_offset for each in report.deleted] == witness.deleted
        assert witness.deleted == witness.deleting == first[: len(witness.deleted)]
        assert len(witness.deleted) > 1
        assert (report.kept, report.dry_run) == (None, False)
        assert report.min_offset == store.min_offset == _starts(tmp_path)[0] > here
        with pytest.raises(OffsetOutOfRange):
            store.look_up(here)
        assert store.delete_expired().deleted == ()


def test_a_dry_run_says_the_same_in_each_role_and_deletes_nothing(
    tmp_path: Path, witness: Witness
) -> None:
    with opened(tmp_path, witness) as store:
        fill(store)
        before = _starts(tmp_path)
        would = store.delete_expired(dry_run=True)
        for mode in ("write", "read"):
            with opened(tmp_path, witness, mode=mode) as other:
                assert other.delete_expired(dry_run=True) == would
        assert _starts(tmp_path)[: len(before)] == before  # one more may be made in advance
        assert store.delete_expired().deleted == would.deleted


def test_a_process_without_the_services_has_the_other_one_delete(
    tmp_path: Path, witness: Witness
) -> None:
    with opened(tmp_path, witness) as owner, opened(tmp_path, witness) as store:
        fill(owner)
        report = store.delete_expired()
        assert report.deleted
        assert report.min_offset == owner.min_offset == store.min_offset


def test_a_reader_deletes_nothing(tmp_path: Path, witness: Witness) -> None:
    with opened(tmp_path, witness) as store:
        fill(store)
    before = _files(tmp_path)
    with opened(tmp_path, witness, mode="read") as reader:
        with pytest.raises(StoreReadOnly):
            reader.delete_expired()
        with pytest.raises(StoreReadOnly):
            reader._current.now().maintenance.delete_unused_topics()
        assert reader.disk() is not None
    assert _files(tmp_path) == before


def test_a_plugin_can_keep_a_segment_and_all_behind_it(tmp_path: Path, witness: Witness) -> None:
    witness.kept = STORE_SEGMENT_BYTES
    with opened(tmp_path, witness) as store:
        fill(store)
        report = store.delete_expired()
        assert report.kept is not None
        assert report.kept.start_offset == store.min_offset == STORE_SEGMENT_BYTES
        assert "still needed" in report.kept.reason
        assert witness.deleted == [0]


def test_a_full_disk_pauses_the_puts_of_every_process(tmp_path: Path, witness: Witness) -> None:
    witness.state = DiskState.STOP_WRITING
    with opened(tmp_path, witness) as owner, opened(tmp_path, witness) as store:
        for each in (owner, store):
            assert not each.is_writable
            with pytest.raises(lakelog.PutRefused, match="of a test"):
                each.put(lakelog.Message("t", b"x"))
        witness.state = DiskState.OK
        owner.disk()
        for each in (owner, store):
            assert each.is_writable
            each.put(lakelog.Message("t", b"x"))


def test_without_cleaner_and_watcher_it_does_nothing(tmp_path: Path, witness: Witness) -> None:
    with opened(tmp_path, witness):
        threads = threading.active_count()
    with opened(tmp_path, witness, cleaner=None, disk_watcher=None) as store:
        assert threading.active_count() < threads
        assert store.disk() is None
        assert store._current.now().maintenance.delete_expired() is None


def test_no_thread_is_left_of_a_closed_store(tmp_path: Path, witness: Witness) -> None:
    before = threading.enumerate()
    opened(tmp_path, witness).close()
    assert [each for each in threading.enumerate() if each not in before] == []
