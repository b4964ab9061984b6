"""Who a store is, and what is said where its file is not what it should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakelog.errors import NotAStore
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.state.identity import make_identity, read_identity

FILES = RealFileSystem()


def written(path: Path, content: bytes) -> Path:
    file = path / "lakelog" / "store.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return path


@pytest.mark.parametrize("new", [True, False])
def test_it_is_read_as_it_was_made(new: bool, tmp_path: Path) -> None:
    assert read_identity(FILES, tmp_path) is None
    made = make_identity(FILES, tmp_path, new=new)
    assert made.created_by_lakelog is new
    assert read_identity(FILES, tmp_path) == made


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"null", "found 'null'"),
        (b"", "found nothing"),
        (b"[1]", "found '[1]'"),
        (b'{"version": 1,\n "uuid": 5}', """found '{"version": 1, "uuid": 5}'"""),
        (b"{}", "found '{}'"),
        (b"\xff", "found '\N{REPLACEMENT CHARACTER}'"),
        (b"[" * 100_000, "found '" + "[" * 60 + "...'"),
    ],
)
def test_a_damaged_one_says_what_was_expected_and_found(
    content: bytes, found: str, tmp_path: Path
) -> None:
    with pytest.raises(NotAStore) as caught:
        read_identity(FILES, written(tmp_path, content))
    expected = "expected an object with version, uuid and created_by_lakelog"
    assert f"store.json: it is damaged: {expected}, {found}; delete it" in str(caught.value)


def test_one_of_a_later_lakelog_is_left_alone(tmp_path: Path) -> None:
    content = json.dumps({"version": 2, "id": "something else"}).encode()
    with pytest.raises(NotAStore, match="version is 2; this lakelog knows 1"):
        read_identity(FILES, written(tmp_path, content))
