"""The queues keep the contract of dispatchers; how a store gets them, and their settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog.settings.resolver as of_files
from lakelog.files.checkpoint import CheckpointKeeper
from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks import Context, Dispatcher
from lakelog.hooks.kinds import StoreSettings
from lakelog_queues import plugin
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_queues.dispatching.tombstones import add_tombstone
from lakelog_queues.plugin import ConsumeQueueSettings, from_queues
from lakelog_testing import DispatcherContract
from plugins.queues.tests.consumequeue.support import SMALL, contents, keep_log, plain, queues


class TestOwned(DispatcherContract):
    def make(self, path: Path) -> ConsumeQueues:
        return queues(path)

    def contents(self, dispatcher: Dispatcher) -> object:
        assert isinstance(dispatcher, ConsumeQueues)
        return contents(dispatcher)


class TestAfterACrash(TestOwned):
    def make(self, path: Path) -> ConsumeQueues:
        return queues(path, clean=False)


# --- how a store gets them ---


FILES = RealFileSystem()


def made(path: Path, **more: Any) -> ConsumeQueues:
    context = Context(path, StoreSettings(), FILES, CheckpointKeeper(FILES, path), **more)
    built = plugin.lakelog_dispatchers()[0].make(SMALL, context)
    assert isinstance(built, ConsumeQueues)
    return built


@pytest.mark.parametrize("left", ["clean", "abort"])
@pytest.mark.parametrize(("kept", "start"), [(True, 1000), (False, 0)])
def test_what_is_asked_for_depends_on_what_was_synced(
    tmp_path: Path, left: str, kept: bool, start: int
) -> None:
    first, batch = made(tmp_path), plain("t", range(5))
    keep_log(tmp_path, batch)
    first.dispatch(batch)
    first.close()
    if left == "abort":
        (tmp_path / left).touch()
    if not kept:  # as in a store that only RocketMQ wrote
        (tmp_path / "lakelog" / "queues.json").unlink()
    again = made(tmp_path)
    (tmp_path / "abort").touch()  # as an owner does before its dispatchers resume
    assert again.resume(0, 2000) == start
    again.close()


def test_tombstones_count(tmp_path: Path) -> None:
    add_tombstone(FILES, tmp_path, "t", 600)
    built = made(tmp_path, read_only=True)
    built.dispatch(plain("t", range(5)))
    assert built.bounds(("t", 0), 0) == (3, 5)
    built.close()


def test_settings_that_make_no_sense_are_refused() -> None:
    wrong: dict[str, Any] = {
        "file_entries": 0,
        "batch_file_size_bytes": 47,
        "flush_interval_ms": 0,
        "flush_least_pages": -1,
        "ext_file_size_bytes": 10,
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            attrs.evolve(ConsumeQueueSettings(), **{name: value})


# --- sizes by the lengths of queue files ---


def _write(folder: Path, *files: tuple[int, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for start, length in files:
        (folder / f"{start:020d}").write_bytes(bytes(length))


def test_each_kind_of_queue_tells_its_own_key(tmp_path: Path) -> None:
    assert list(from_queues(tmp_path)) == []
    _write(tmp_path / "consumequeue" / "t" / "0", (0, 320), (320, 320))
    _write(tmp_path / "consumequeue" / "t" / "1", (0, 320))
    _write(tmp_path / "consumequeue" / "u" / "0", (0, 60))  # one damaged file is outvoted
    _write(tmp_path / "consumequeue_ext" / "t" / "0", (0, 640))
    _write(tmp_path / "batchconsumequeue" / "t" / "0", (0, 460))
    assert [(key, value) for key, value, _ in from_queues(tmp_path)] == [
        ("file_entries", 16),
        ("ext_file_size_bytes", 640),
        ("batch_file_size_bytes", 460),
    ]


def test_files_that_go_meanwhile_say_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tmp_path / "consumequeue" / "t" / "0"
    _write(queue, (0, 320), (320, 320), (640, 320))
    listed = of_files.entries

    def entries(directory: Path) -> list[os.DirEntry[str]]:
        found = listed(directory)
        if directory == queue:
            (queue / f"{0:020d}").unlink()
        return found

    monkeypatch.setattr(of_files, "entries", entries)
    assert [value for _, value, _ in from_queues(tmp_path)] == [16]
