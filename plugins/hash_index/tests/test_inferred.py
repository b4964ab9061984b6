"""Sizes told by the files of an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog_hash_index.settings import from_index, index_sizes


def test_the_index() -> None:
    assert index_sizes(84040) == (1000, 4000)
    assert index_sizes(84041) is None
    assert index_sizes(40) is None
    assert index_sizes(0) is None


def test_the_oldest_file_of_the_usual_ratio_tells(tmp_path: Path) -> None:
    assert list(from_index(tmp_path)) == []
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "1").write_bytes(bytes(8441))
    (folder / "2").write_bytes(bytes(8440))
    (folder / "3").write_bytes(bytes(84040))
    (folder / "0").symlink_to(folder / "3")
    assert list(from_index(tmp_path)) == [
        ("slots", 100, folder / "2"),
        ("entries", 400, folder / "2"),
    ]


def test_a_file_that_goes_meanwhile_says_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    for name in "12":
        (folder / name).write_bytes(bytes(8440))
    listed = Path.iterdir

    def iterdir(path: Path) -> list[Path]:
        found = list(listed(path))
        (folder / "1").unlink()
        return found

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert [file.name for _, _, file in from_index(tmp_path)] == ["2", "2"]
