"""Files whose records were deleted from the log go, and the rest is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakelog
import lakelog_hash_index.plugin as hash_index
from lakelog import Message
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import INDEX_DIR
from lakelog_hash_index.indexfile import IndexFile
from lakelog_testing.crash.opener import owned_by
from plugins.hash_index.tests.support import RECS, SMALL, built, find, index_paths, owner, resumed

pytestmark = pytest.mark.both_ways


IN_A_STORE: dict[str, Any] = {
    "plugins": [hash_index],
    "flush": "none",
    "segment_size_bytes": 16 << 10,
    "preallocate": False,
    "hash-index": {"slots": 8, "entries": 17},
}


def index_files(path: Path) -> list[str]:
    return [each.name for each in index_paths(path)]


def test_files_of_what_is_deleted_go_and_the_rest_is_found(tmp_path: Path) -> None:
    with lakelog.open(tmp_path, **IN_A_STORE) as store:
        put = [store.put(Message("t", bytes(400), keys=f"k{n}")) for n in range(100)]
        assert store.wait_dispatched()
        index: Any = next(
            each.dispatcher for each in owned_by(store).dispatchers if each.name == "hash-index"
        )
        before = index_files(tmp_path)
        assert index.remove_before(0) == 0
        minimum = put[50].physical_offset
        due = [file.name for file in index.deletable(minimum)]
        assert len(due) == 3
        assert index.remove_before(minimum) == 3
        assert index_files(tmp_path) == before[3:] == sorted(set(before) - set(due))
        for number, result in enumerate(put):
            found = [each.physical_offset for each in store.query("t", f"k{number}")]
            assert found == ([result.physical_offset] if number >= 50 else [])
        assert index.remove_before(put[-1].end_offset) == len(before) - 4
        assert index_files(tmp_path) == before[-1:]
        more = store.put(Message("t", b"", keys="more"))
        assert store.wait_dispatched(more.end_offset)
        assert [each.physical_offset for each in store.query("t", "more")] == [more.physical_offset]


class Late(RealFileSystem):
    """Lists the index, and then loses its first file."""

    def list(self, directory: Path) -> list[tuple[str, int]]:
        found = super().list(directory)
        if directory.name == INDEX_DIR and len(found) > 3:
            (directory / found[0][0]).unlink()
        return found


def test_a_reader_looks_again_when_a_file_goes_while_it_opens(tmp_path: Path) -> None:
    with lakelog.open(tmp_path, **IN_A_STORE) as store:
        for number in range(64):
            store.put(Message("t", bytes(40), keys=f"k{number}"))
        assert store.wait_dispatched()
    assert len(index_files(tmp_path)) == 4
    with lakelog.open(tmp_path, mode="read", files=Late(), **IN_A_STORE) as store:
        assert len(store.query("t", "k63")) == 1
        assert len(index_files(tmp_path)) == 3


def test_the_file_of_the_oldest_message_stays(tmp_path: Path) -> None:
    batch = built(tmp_path, RECS)
    offsets = batch.physical_offsets.tolist()
    index = resumed(owner(tmp_path), batch)
    first = IndexFile(RealFileSystem(), index_paths(tmp_path)[0], SMALL.shape)
    assert first.header().end_offset == offsets[2]
    assert index.remove_before(offsets[2]) == 0
    assert find(index, "k2") == [offsets[2]]
    assert index.remove_before(offsets[2] + 1) == 1
    index.close()
