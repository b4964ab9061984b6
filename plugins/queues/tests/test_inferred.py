"""Sizes told by the files of queues."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lakelog.settings.inferred as of_files
from lakelog_queues.inferred import from_queues, most_common, queue_size


def _write(folder: Path, *files: tuple[int, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for start, length in files:
        (folder / f"{start:020d}").write_bytes(bytes(length))


def test_a_queue_whose_files_hold_whole_entries(tmp_path: Path) -> None:
    assert queue_size(tmp_path / "absent", 20) is None
    _write(tmp_path, (0, 2000), (2000, 2000))
    assert queue_size(tmp_path, 20) == (100, tmp_path / ("0" * 20))
    assert queue_size(tmp_path, 19) is None


def test_one_damaged_file_is_outvoted() -> None:
    assert most_common([(3, Path("a")), None, (100, Path("b")), (100, Path("c"))]) == (
        100,
        Path("b"),
    )
    assert most_common([None]) is None


def test_each_kind_of_queue_tells_its_own_key(tmp_path: Path) -> None:
    assert list(from_queues(tmp_path)) == []
    _write(tmp_path / "consumequeue" / "t" / "0", (0, 320))
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
