"""The contracts of the index, and its sizes by the lengths of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.hooks import Dispatcher
from lakelog_hash_index import plugin
from lakelog_hash_index.plugin import HashIndexSettings, from_index
from lakelog_testing import DispatcherContract, PluginContract
from plugins.hash_index.tests.support import find, owner

pytestmark = pytest.mark.both_ways

# --- contracts, and sizes by the lengths of files ---


class TestOwnerIndex(DispatcherContract):
    """With files so small that forty records need seven of them."""

    def make(self, path: Path) -> Dispatcher:
        return owner(path, HashIndexSettings(slots=5, entries=7))

    def contents(self, dispatcher: Dispatcher) -> object:
        return [find(dispatcher, f"k{at}", "orders") for at in range(40)]


class TestPlugin(PluginContract):
    plugin = plugin


@pytest.mark.parametrize(
    ("slots", "entries", "what"),
    [(0, 10, "slots"), (1, 1, "entries"), (5_000_000, 120_000_000, "RocketMQ opens at most")],
)
def test_sizes_that_no_file_can_have(slots: int, entries: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        HashIndexSettings(slots=slots, entries=entries)


# --- sizes by the lengths of index files ---


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
