"""Index files of another length: built again where they were cut, refused where settings differ."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from lakelog.errors import CorruptIndex
from plugins.hash_index.tests.support import (
    SMALL,
    Rec,
    built,
    index_paths,
    owner,
    reader,
    resumed,
    snapshot,
)
from plugins.hash_index.tests.test_files import RECS, answers, expected, until_damage


@pytest.mark.parametrize("length", [1, 60, 100, -20])
@pytest.mark.parametrize("at", [0, 1, -1])
def test_one_file_of_another_length_is_told_of_by_the_reader_and_built_again_by_the_owner(
    tmp_path: Path, at: int, length: int
) -> None:
    batch = built(tmp_path, RECS)
    offsets = batch.physical_offsets.tolist()
    path = index_paths(tmp_path)[at]
    path.write_bytes(path.read_bytes()[:length])
    index = resumed(reader(tmp_path), batch)
    found, error = until_damage(index)
    assert "bytes, but" in str(error)
    assert found == offsets[::-1]
    resumed(owner(tmp_path), batch).close()
    assert answers(resumed(reader(tmp_path), batch)) == expected(offsets)
    assert (tmp_path / "lakelog" / "quarantine" / path.name).exists()


def test_other_settings_are_told_from_damage(tmp_path: Path) -> None:
    batch = built(tmp_path, RECS)
    before = snapshot(tmp_path)
    for other in (attrs.evolve(SMALL, slots=50), attrs.evolve(SMALL, entries=7)):
        with pytest.raises(CorruptIndex, match=r"hash-index\.slots=\d+ and hash-index\.entries"):
            owner(tmp_path, other).resume(0, batch.end_offset)
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("length", [1, 39, 60])
def test_the_only_file_is_built_again_where_it_was_cut(tmp_path: Path, length: int) -> None:
    batch = built(tmp_path, [Rec(), *RECS[:2]])
    (path,) = index_paths(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    resumed(owner(tmp_path), batch).close()
    assert [each.read_bytes() for each in index_paths(tmp_path)] == [whole]
