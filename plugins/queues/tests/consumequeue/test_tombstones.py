"""Topics whose queues must not come back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from core.tests.store.faults import NthFails
from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.dispatching.tombstones import (
    TombstoneFile,
    add_tombstone,
    clear_tombstones,
    delete_topic,
    read_tombstones,
)

FILES = RealFileSystem()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"{}", b"[]", b"\xff", b'{"queues":[1]}', b'{"queues":null}'),
        *(b'{"queues":{"t":-1}}', b'{"queues":{"t":"1"}}', b'{"queues":{"t":true}}'),
    ],
)
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "lakelog" / "tombstones.json"
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(
        CorruptConfig, match=r"tombstones\.json: it is damaged: expected \{"
    ) as caught:
        read_tombstones(FILES, tmp_path)
    assert "Error" not in str(caught.value)
    clear_tombstones(FILES, tmp_path)
    assert read_tombstones(FILES, tmp_path) == {}


def test_the_tombstone_comes_before_the_queues_go(tmp_path: Path) -> None:
    seen = []

    def forget(topic: str, end_offset: int) -> None:
        seen.append((topic, end_offset, read_tombstones(FILES, tmp_path)))

    delete_topic(FILES, tmp_path, "t", 700, forget)
    assert seen == [("t", 700, {"t": 700})]


def test_a_file_that_is_watched_says_what_is_new(tmp_path: Path) -> None:
    add_tombstone(FILES, tmp_path, "old", 7)
    watched = TombstoneFile(FILES, tmp_path)
    assert watched.changes() == {}
    add_tombstone(FILES, tmp_path, "new", 100)
    assert watched.changes() == {"new": 100}
    assert watched.changes() == {}
    add_tombstone(FILES, tmp_path, "old", 50)
    assert (watched.end_of("old"), watched.end_of("other")) == (50, 0)
    clear_tombstones(FILES, tmp_path)
    assert watched.end_of("old") == 0


def test_a_file_that_nobody_else_writes_is_read_after_each_write(tmp_path: Path) -> None:
    watched = TombstoneFile(FILES, tmp_path, alone=True)
    assert watched.end_of("t") == 0
    add_tombstone(FILES, tmp_path, "t", 100)
    assert watched.end_of("t") == 100
    files = NthFails()
    files.arm(1, errno.EIO, lambda call, _: call == "sync_dir")
    with pytest.raises(OSError, match="EIO"):
        add_tombstone(files, tmp_path, "t", 200)
    assert watched.end_of("t") == read_tombstones(FILES, tmp_path)["t"] == 100
    clear_tombstones(FILES, tmp_path)
    assert watched.end_of("t") == 0


@pytest.mark.parametrize("failing", ["rename", "sync_dir"])
@pytest.mark.parametrize("before", [{}, {"other": 5}])
def test_a_tombstone_that_is_not_durable_is_taken_back(
    failing: str, before: dict[str, int], tmp_path: Path
) -> None:
    for topic, end in before.items():
        add_tombstone(FILES, tmp_path, topic, end)
    files = NthFails()
    files.arm(1, errno.EIO, lambda call, at: call == failing and "lakelog" in str(at))
    (tmp_path / "lakelog").mkdir(exist_ok=True)
    with pytest.raises(OSError, match="EIO"):
        add_tombstone(files, tmp_path, "t", 100)
    assert read_tombstones(FILES, tmp_path) == before


def test_none_then_some_then_none(tmp_path: Path) -> None:
    assert read_tombstones(FILES, tmp_path) == {}
    add_tombstone(FILES, tmp_path, "Müll", 100)
    add_tombstone(FILES, tmp_path, "Müll", 200)
    add_tombstone(FILES, tmp_path, "other", 0)
    assert read_tombstones(FILES, tmp_path) == {"Müll": 200, "other": 0}
    clear_tombstones(FILES, tmp_path)
    clear_tombstones(FILES, tmp_path)
    assert read_tombstones(FILES, tmp_path) == {}


def test_an_older_end_leaves_a_tombstone_as_it_is(tmp_path: Path) -> None:
    add_tombstone(FILES, tmp_path, "t", 100)
    add_tombstone(FILES, tmp_path, "t", 50)
    assert read_tombstones(FILES, tmp_path) == {"t": 100}
