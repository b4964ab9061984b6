"""Queues built again from the log, and the state after a failure."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.store.support import SEGMENT, a_store, fill, open_small, tree
from lakelog import Message
from lakelog.codec import RecordBatch
from lakelog.errors import DispatchStopped, NotAStore, StoreError, StoreLocked
from lakelog.files.filesystem import RealFileSystem, remove_tree
from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind, NoSettings
from lakelog_doctor.rebuild import RebuildReport, rebuild
from lakelog_doctor.swap import swap_in
from lakelog_queues.dispatching.tombstones import add_tombstone, read_tombstones

FILES = RealFileSystem()
UNIT = struct.Struct(">qiq")


def rebuild_small(path: Path, **more: Any) -> RebuildReport:
    given = {"plugins": [], "flush": "none", "segment_size_bytes": SEGMENT, **more}
    return rebuild(path, **given)


def units(path: Path, topic: str = "t", queue_id: int = 0) -> list[tuple[int, int]]:
    """Offset and size of each unit in the files of a queue."""
    found = []
    for file in sorted((path / "consumequeue" / topic / str(queue_id)).iterdir()):
        for offset, size, _ in UNIT.iter_unpack(file.read_bytes()):
            if size == 0:
                break
            found.append((offset, size))
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store with 100 messages."""
    a_store(tmp_path / "store")
    return tmp_path / "store"


def log_of(path: Path) -> dict[str, str]:
    return tree(path / "commitlog")


def spoil(path: Path) -> None:
    """Add a queue whose units belong to no record."""
    folder = path / "consumequeue" / "ghost" / "0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(UNIT.pack(77, 7, 7) * 10)


def test_queues_are_as_the_log_says(store: Path) -> None:
    spoil(store)
    shutil.rmtree(store / "consumequeue" / "t", ignore_errors=True)
    before = log_of(store)
    report = rebuild_small(store)
    assert report.records == 100
    assert report.damage == ()
    assert "consumequeue" in report.folders
    assert not (store / "consumequeue" / "ghost").exists()
    assert len(units(store)) == 100
    assert log_of(store) == before
    assert not (store / "lakelog" / "tmp" / "rebuild").exists()
    with open_small(store) as opened:
        messages = list(opened.scan())
    assert units(store) == [(each.physical_offset, each.size) for each in messages]


def test_progress_goes_to_the_end(store: Path) -> None:
    seen: list[tuple[int, int]] = []
    rebuild_small(store, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0


def test_damage_is_passed_over_and_reported(store: Path) -> None:
    with open_small(store) as opened:
        fifth = list(opened.scan())[5]
    file = store / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[fifth.physical_offset + 100] ^= 1
    file.write_bytes(data)
    (store / "abort").write_text("1")
    before = log_of(store)
    report = rebuild_small(store)
    assert report.records == 99
    assert [each.offset for each in report.damage] == [fifth.physical_offset]
    assert log_of(store) == before
    assert (store / "abort").read_text() == "1"
    assert fifth.physical_offset not in [offset for offset, _ in units(store)]


def test_tombstones_are_forgotten(store: Path) -> None:
    add_tombstone(FILES, store, "t", 1 << 40)
    assert rebuild_small(store).records == 100
    assert len(units(store)) == 100
    assert read_tombstones(FILES, store) == {}


def test_without_queues_they_and_their_tombstones_stay(store: Path) -> None:
    add_tombstone(FILES, store, "t", 1 << 40)
    spoil(store)
    before = tree(store / "consumequeue")
    assert rebuild_small(store, queues=False).folders == ()
    assert tree(store / "consumequeue") == before
    assert read_tombstones(FILES, store) == {"t": 1 << 40}


def test_a_living_owner_is_left_alone(store: Path) -> None:
    with open_small(store) as opened:
        fill(opened, 1)
        with pytest.raises(StoreLocked, match="stop it first"):
            rebuild_small(store)
        opened.put(Message("t", b"more"))


def test_no_store_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        rebuild_small(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_rebuild_left_is_cleared(store: Path) -> None:
    left = store / "lakelog" / "tmp" / "rebuild" / "consumequeue" / "ghost" / "0"
    left.mkdir(parents=True)
    rebuild_small(store)
    assert not (store / "consumequeue" / "ghost").exists()


def test_a_folder_that_stands_elsewhere_is_refused(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue", ignore_errors=True)
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
        (self.path / "made").mkdir()
        (self.path / "made" / "new").write_text("new")
        return minimum

    def dispatch(self, batch: RecordBatch) -> None:
        self._at("dispatch")

    def truncate(self, end_offset: int) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        self._at("flush")

    def close(self) -> None:
        self.closed = True


class Plugin:
    """Offers :class:`Failing`."""

    __name__ = "failing"

    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in
        self.made: list[Failing] = []

    def _make(self, settings: NoSettings, context: Context) -> Failing:
        self.made.append(Failing(context.path, self.fails_in))
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
    with pytest.raises(DispatchStopped, match="No space left"):
        lakelog.recover(
            store,
            plugins=[Plugin("dispatch")],
            dispatchers=("failing",),
            segment_size_bytes=SEGMENT,
        )


def test_a_dispatcher_of_a_plugin_takes_part(store: Path) -> None:
    (store / "made").mkdir()
    (store / "made" / "old").write_text("old")
    report = rebuild_small(store, plugins=[Plugin("nowhere")], dispatchers=("failing",))
    assert report.folders == ("made",)
    assert [each.name for each in (store / "made").iterdir()] == ["new"]


def test_an_interrupted_swap_leaves_the_old_or_the_new(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(store)
    monkeypatch.setattr(RealFileSystem, "exchange", _raises)
    before = tree(store / "consumequeue")
    with pytest.raises(StoreError):
        rebuild_small(store)
    assert tree(store / "consumequeue") == before


def _raises(files: RealFileSystem, one: Path, other: Path) -> bool:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


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
    for round_ in range(4):
        command = [sys.executable, "-c", _REBUILDER, str(store), str(SEGMENT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.011 * round_)
            process.kill()
        assert tree(store / "consumequeue") == expected
    (store / "abort").unlink(missing_ok=True)
    rebuild_small(store)
    assert not (store / "lakelog" / "tmp" / "rebuild").exists()


# --- the swap itself ---


def _folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    (path / name / name).write_text(name)
    return path / name


def _cannot(files: RealFileSystem, one: Path, other: Path) -> bool:
    return False


@pytest.mark.parametrize("exchange", [RealFileSystem.exchange, _cannot])
def test_folders_change_places(
    exchange: Callable[[RealFileSystem, Path, Path], bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RealFileSystem, "exchange", exchange)
    new, target = _folder(tmp_path, "new"), _folder(tmp_path, "target")
    swap_in(FILES, new, target, tmp_path / "old")
    assert (target / "new").read_text() == "new"
    assert (tmp_path / "old" / "target").read_text() == "target"
    assert not new.exists()
    remove_tree(FILES, tmp_path / "old")
    remove_tree(FILES, tmp_path / "old")
    assert [each.name for each in tmp_path.iterdir()] == ["target"]


def test_one_of_the_two_may_be_missing(tmp_path: Path) -> None:
    swap_in(FILES, _folder(tmp_path, "new"), tmp_path / "target", tmp_path / "old")
    assert (tmp_path / "target" / "new").exists()
    swap_in(FILES, tmp_path / "new", tmp_path / "target", tmp_path / "old")
    assert not (tmp_path / "target").exists()
    assert (tmp_path / "old" / "new").exists()
    swap_in(FILES, tmp_path / "new", tmp_path / "target", tmp_path / "older")


class NoSecondRename(RealFileSystem):
    """The second step fails."""

    def rename(self, source: Path, target: Path) -> None:
        if source.name == "new":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        RealFileSystem.rename(self, source, target)


def test_in_two_steps_the_old_one_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealFileSystem, "exchange", _cannot)
    new, target = _folder(tmp_path, "new"), _folder(tmp_path, "target")
    with pytest.raises(OSError, match="Input/output"):
        swap_in(NoSecondRename(), new, target, tmp_path / "old")
    assert (target / "target").exists()


class Pair(Failing):
    """Makes two folders that belong together."""

    directories = ("made", "beside")

    def flush(self) -> None:
        (self.path / "beside").mkdir()


class PairPlugin(Plugin):
    """Offers :class:`Pair`."""

    def _make(self, settings: NoSettings, context: Context) -> Failing:
        return Pair(context.path, "nowhere")


def test_folders_that_belong_together_change_under_abort(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = swap_in, []

    def watched(files: RealFileSystem, new: Path, target: Path, old: Path) -> None:
        seen.append((target.name, (store / "abort").exists()))
        real(files, new, target, old)

    monkeypatch.setattr("lakelog_doctor.rebuild.swap_in", watched)
    rebuild_small(store, plugins=[PairPlugin("nowhere")], dispatchers=("failing",))
    assert seen == [(name, True) for name in ("beside", "made", "made", "beside")]
    assert not (store / "abort").exists()
    monkeypatch.setattr("lakelog_doctor.rebuild.swap_in", _raises_on_beside)
    with pytest.raises(StoreError):
        rebuild_small(store, plugins=[PairPlugin("nowhere")], dispatchers=("failing",))
    assert (store / "abort").exists()


def _raises_on_beside(files: RealFileSystem, new: Path, target: Path, old: Path) -> None:
    if target.name == "beside":
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    swap_in(files, new, target, old)


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


def test_an_index_alone_leaves_the_list(store: Path) -> None:
    before = (store / "lakelog" / "queues.json").read_bytes()
    rebuild_small(store, queues=False)
    assert (store / "lakelog" / "queues.json").read_bytes() == before
