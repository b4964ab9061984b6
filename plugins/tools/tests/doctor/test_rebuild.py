"""Queues built again from the log, and the state after a failure."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.store.support import SEGMENT, a_store, open_small, overwrite, tree
from lakelog.errors import DispatchStopped, StoreError
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import Context, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl
from lakelog_doctor.rebuild import RebuildReport, rebuild
from lakelog_queues.dispatching.tombstones import add_tombstone, read_tombstones

FILES = RealFileSystem()
UNIT = struct.Struct(">qiq")


def rebuild_small(path: Path, **more: Any) -> RebuildReport:
    given = {"plugins": [], "flush": "none", "segment_size_bytes": SEGMENT, **more}
    return rebuild(path, **given)


def units(path: Path) -> list[tuple[int, int]]:
    """Offset and size of each unit in the files of the queue."""
    files = sorted((path / "consumequeue" / "t" / "0").iterdir())
    found = [each for file in files for each in UNIT.iter_unpack(file.read_bytes())]
    return [(offset, size) for offset, size, _ in found if size]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store with 100 messages."""
    a_store(tmp_path / "store")
    return tmp_path / "store"


def spoil(path: Path) -> None:
    """Add a queue whose units belong to no record."""
    folder = path / "consumequeue" / "ghost" / "0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(UNIT.pack(77, 7, 7) * 10)


def test_queues_are_as_the_log_says(store: Path) -> None:
    spoil(store)
    left = store / "lakelog" / "tmp" / "rebuild" / "consumequeue" / "left" / "0"
    left.mkdir(parents=True)  # by a rebuild that was killed
    shutil.rmtree(store / "consumequeue" / "t")
    add_tombstone(FILES, store, "t", 1 << 40)
    before = tree(store / "commitlog")
    seen: list[tuple[int, int]] = []
    report = rebuild_small(store, progress=lambda done, total: seen.append((done, total)))
    assert (report.records, report.damage) == (100, ())
    assert "consumequeue" in report.folders
    assert [each.name for each in (store / "consumequeue").iterdir()] == ["t"]
    assert tree(store / "commitlog") == before
    assert not (store / "lakelog" / "tmp" / "rebuild").exists()
    assert read_tombstones(FILES, store) == {}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0
    with open_small(store) as opened:
        messages = list(opened.scan())
    assert units(store) == [(each.physical_offset, each.size) for each in messages]


def test_damage_is_passed_over_and_reported(store: Path) -> None:
    with open_small(store) as opened:
        fifth = list(opened.scan())[5]
    overwrite(store, fifth.physical_offset + 100, b"!")
    (store / "abort").write_text("1")
    before = tree(store / "commitlog")
    report = rebuild_small(store)
    assert report.records == 99
    assert [each.offset for each in report.damage] == [fifth.physical_offset]
    assert tree(store / "commitlog") == before
    assert (store / "abort").read_text() == "1"
    assert fifth.physical_offset not in [offset for offset, _ in units(store)]


def test_without_queues_they_and_their_tombstones_stay(store: Path) -> None:
    add_tombstone(FILES, store, "t", 1 << 40)
    spoil(store)
    listed = (store / "lakelog" / "queues.json").read_bytes()
    before = tree(store / "consumequeue")
    assert rebuild_small(store, queues=False).folders == ()
    assert tree(store / "consumequeue") == before
    assert read_tombstones(FILES, store) == {"t": 1 << 40}
    assert (store / "lakelog" / "queues.json").read_bytes() == listed


def test_a_folder_that_stands_elsewhere_is_refused(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (tmp_path / "elsewhere").mkdir()
    (store / "consumequeue").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="it is a link"):
        rebuild_small(store)
    assert (store / "consumequeue").is_symlink()


class Failing:
    """A dispatcher that writes, and then fails."""

    directories: Sequence[str] = ("made",)

    def __init__(self, path: Path, fails_in: str) -> None:
        self.path, self.fails_in, self.closed = path, fails_in, False

    def _at(self, name: str) -> None:
        if name == self.fails_in:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def resume(self, minimum: int, end: int) -> int:
        for each in self.directories:
            (self.path / each).mkdir()
            (self.path / each / "new").write_text("new")
        return minimum

    def dispatch(self, batch: RecordBatch) -> None:
        self._at("dispatch")

    def truncate(self, end_offset: int) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        self._at("flush")

    def close(self) -> None:
        self.closed = True


class Pair(Failing):
    """Makes two folders that belong together."""

    directories = ("made", "beside")


class Plugin:
    """Offers such a dispatcher."""

    __name__ = "failing"

    def __init__(self, fails_in: str = "nowhere", kind: type[Failing] = Failing) -> None:
        self.fails_in, self.kind = fails_in, kind
        self.made: list[Failing] = []

    def _make(self, settings: NoSettings, context: Context) -> Failing:
        self.made.append(self.kind(context.path, self.fails_in))
        return self.made[-1]

    @hookimpl
    def lakelog_dispatchers(self) -> list[Factory]:
        return [Factory(Kind.DISPATCHER, "failing", NoSettings, self._make)]


@pytest.mark.parametrize("fails_in", ["dispatch", "flush"])
def test_a_failure_leaves_all_as_it_was(fails_in: str, store: Path) -> None:
    spoil(store)
    (store / "made").mkdir()
    (store / "made" / "old").write_text("old")
    (store / "lakelog" / "tmp").mkdir(parents=True, exist_ok=True)
    before, plugin = tree(store), Plugin(fails_in)
    with pytest.raises(StoreError, match="No space left"):
        rebuild_small(store, plugins=[plugin], dispatchers=("consume-queue", "failing"))
    assert tree(store) == before
    assert plugin.made[0].closed


def test_a_recovery_that_cannot_complete_a_dispatcher_fails(store: Path) -> None:
    given: dict[str, Any] = {"dispatchers": ("failing",), "segment_size_bytes": SEGMENT}
    with pytest.raises(DispatchStopped, match="No space left"):
        lakelog.recover(store, plugins=[Plugin("dispatch")], **given)


class NoExchange(RealFileSystem):
    """Folders cannot be exchanged in one step, and the second of two steps fails."""

    def exchange(self, one: Path, other: Path) -> bool:
        return False

    def rename(self, source: Path, target: Path) -> None:
        if target.name == "consumequeue" and source.parent.name == "rebuild":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().rename(source, target)


class FailingExchange(RealFileSystem):
    """The exchange of two folders fails."""

    def exchange(self, one: Path, other: Path) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("files", [NoExchange(), FailingExchange()], ids=["steps", "exchange"])
def test_a_swap_that_fails_leaves_the_old_queues(store: Path, files: FileSystem) -> None:
    spoil(store)
    before = tree(store / "consumequeue")
    with pytest.raises(StoreError, match="Input/output"):
        rebuild_small(store, files=files)
    assert tree(store / "consumequeue") == before


class NoFolderBeside(RealFileSystem):
    """Folders of one name cannot be moved to a store.

    :ivar seen: what was moved, and whether the store was marked as not closed cleanly
    """

    def __init__(self) -> None:
        object.__setattr__(self, "seen", [])

    seen: list[tuple[str, bool]]

    def rename(self, source: Path, target: Path) -> None:
        if target.parent.name == "store" and target.name in Pair.directories:
            self.seen.append((target.name, (target.parent / "abort").exists()))
            if target.name == "beside" and len(self.seen) > 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().rename(source, target)


def test_folders_that_belong_together_change_under_abort(store: Path) -> None:
    files, given = NoFolderBeside(), {"dispatchers": ("failing",)}
    rebuild_small(store, plugins=[Plugin(kind=Pair)], files=files, **given)
    assert files.seen == [("made", True), ("beside", True)]
    assert not (store / "abort").exists()
    with pytest.raises(StoreError, match="Input/output"):
        rebuild_small(store, plugins=[Plugin(kind=Pair)], files=files, **given)
    assert (store / "abort").exists()


_REBUILDER = """
import sys
from lakelog_doctor.rebuild import rebuild
while True:
    rebuild(sys.argv[1], plugins=[], flush="none", segment_size_bytes=int(sys.argv[2]))
    print("once more", flush=True)
"""


def test_a_kill_at_any_moment_leaves_whole_queues(store: Path) -> None:
    rebuild_small(store)
    expected = tree(store / "consumequeue")
    for round_ in range(3):
        command = [sys.executable, "-c", _REBUILDER, str(store), str(SEGMENT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.014 * round_)
            process.kill()
        assert tree(store / "consumequeue") == expected
    (store / "abort").unlink(missing_ok=True)
    rebuild_small(store)
    assert not (store / "lakelog" / "tmp" / "rebuild").exists()


# --- the state for the next open ---


@pytest.mark.parametrize("crashed", [False, True])
def test_the_next_open_dispatches_nothing_again(store: Path, crashed: bool) -> None:
    spoil(store)
    rebuild_small(store)
    if crashed:
        (store / "abort").write_text("4711")
    with open_small(store) as opened:
        assert opened.recovery is not None
        assert opened.recovery.dispatched_from == opened.max_offset
        assert opened.queue_bounds("t", 0) == (0, 100)


def test_what_is_lost_after_a_rebuild_is_noticed(store: Path) -> None:
    rebuild_small(store)
    shutil.rmtree(store / "consumequeue")
    with open_small(store) as opened:
        assert opened.recovery is not None
        assert opened.recovery.dispatched_from == 0
        assert len(opened.get("t", 0, 0, 200).messages) == 100


def test_no_queues_no_list(tmp_path: Path) -> None:
    a_store(tmp_path, 0)
    rebuild_small(tmp_path)
    assert not (tmp_path / "lakelog" / "queues.json").exists()
