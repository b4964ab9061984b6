"""A checkpoint that claims more than the log has is reported, field by field."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from core.tests.store.support import a_store, open_small
from lakelog.files.filesystem import RealFileSystem
from lakelog_doctor.check import check_checkpoint
from lakelog_interfaces.checkpoint import read_checkpoint, write_checkpoint

FILES = RealFileSystem()
FIELDS = {
    "physic_timestamp_ms": 0,
    "logics_timestamp_ms": 8,
    "index_timestamp_ms": 16,
    "confirm_offset": 32,
}


@pytest.fixture
def closed(tmp_path: Path) -> tuple[Path, int, int]:
    """A closed store, the end of its log, and its last store time."""
    last = a_store(tmp_path / "store", 10)[-1]
    return tmp_path / "store", last.end_offset, last.store_timestamp_ms


def test_what_a_clean_stop_leaves_is_right(closed: tuple[Path, int, int]) -> None:
    assert list(check_checkpoint(*closed)) == []


@pytest.mark.parametrize(("field", "position"), FIELDS.items())
def test_what_claims_too_much_is_told(
    closed: tuple[Path, int, int], field: str, position: int
) -> None:
    path, end, last_ms = closed
    too_much = 1 + (end if field == "confirm_offset" else last_ms)
    write_checkpoint(FILES, path, attrs.evolve(read_checkpoint(FILES, path), **{field: too_much}))
    (problem,) = check_checkpoint(*closed)
    assert (problem.path, problem.position) == (path / "checkpoint", position)
    assert problem.found == str(too_much)
    with open_small(path):
        assert list(check_checkpoint(*closed)) == []  # its owner moves it


def test_one_that_is_missing_or_cut_is_told(closed: tuple[Path, int, int]) -> None:
    file = closed[0] / "checkpoint"
    file.write_bytes(bytes(39))
    (cut,) = check_checkpoint(*closed)
    assert cut.found == "39 bytes"
    file.unlink()
    (missing,) = check_checkpoint(*closed)
    assert missing.found == "no file"
    assert list(check_checkpoint(closed[0], 0, 0)) == []
