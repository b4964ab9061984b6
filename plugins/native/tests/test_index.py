"""Files of a key index that are checked or cut: both ways find and write the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.files.filesystem import RealFileSystem
from lakelog_hash_index import filewriter
from lakelog_hash_index import indexfile as examining
from lakelog_hash_index.filewriter import IndexFileWriter
from lakelog_hash_index.indexfile import IndexFile, examine
from lakelog_hash_index.plugin import HashIndexSettings
from lakelog_hash_index.shape import IndexShape
from plugins.hash_index.tests.support import Rec, built, index_paths
from plugins.native.tests.support import NATIVE, both

SHAPE = IndexShape(slots=5, entries=40)
FILES = RealFileSystem()
KEYS = 30


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with some entries in each slot."""
    path = tmp_path_factory.mktemp("index")
    recs = [Rec.keyed(f"k{at}", time_ms=1_700_000_000_000 + 700 * at) for at in range(KEYS)]
    built(path, recs, HashIndexSettings(slots=SHAPE.slots, entries=SHAPE.entries))
    (file,) = index_paths(path)
    return file.read_bytes()


def problems(content: bytes, growing: bool) -> list[str]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        seen = IndexFile(FILES, Path(file.name), SHAPE)
        return [str(each).replace(file.name, "") for each in examine(seen, growing=growing)]


def cut(content: bytes, count: int) -> bytes:
    """The file without entry ``count`` and later ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        path.write_bytes(content)
        writer = IndexFileWriter(IndexFile(FILES, path, SHAPE), FILES.open(path, write=True))
        writer.cut(count)
        writer.close()
        return path.read_bytes()


@pytest.fixture(autouse=True, params=[7, 1 << 18])
def _chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few entries are followed at once, or all."""
    for module in (examining, filewriter):
        monkeypatch.setattr(module, "_CHUNK", request.param)


@pytest.mark.sample(1)
@pytest.mark.parametrize("growing", [False, True])
def test_every_field_of_a_file(sound: bytes, growing: bool) -> None:
    assert problems(sound, growing) == []
    first = SHAPE.entry_at(0)
    for at in [*range(SHAPE.slot_at(0), SHAPE.slots_end, 3), *range(first, len(sound), 7)]:
        for value in (0, 1, 0x80, 0xFF):
            bad = bytearray(sound)
            bad[at] = value
            native, plain = both(lambda bad=bad: problems(bytes(bad), growing))  # type: ignore[misc]  # one name for two
            assert native == plain, (at, value)


@given(st.data())
def test_cuts(sound: bytes, data: st.DataObject) -> None:
    count = data.draw(st.integers(2, KEYS + 1))
    bad = bytearray(sound)
    for _ in range(data.draw(st.integers(0, 2))):
        bad[data.draw(st.integers(SHAPE.slot_at(0), len(bad) - 1))] = data.draw(st.integers(0, 255))
    native, plain = both(lambda: cut(bytes(bad), count))
    assert native == plain


def test_sound_entries_are_followed(sound: bytes) -> None:
    entries = np.frombuffer(sound, np.uint8)[SHAPE.entry_at(1) : SHAPE.entry_at(KEYS + 1)]
    heads = np.zeros(SHAPE.slots, np.int32)
    found = NATIVE.follow_entries(entries, 1, 0, heads)
    assert found is not None
    assert found[0] == SHAPE.slots
    slots = np.frombuffer(sound, ">i4", SHAPE.slots, SHAPE.slot_at(0))
    assert heads.tolist() == slots.tolist()


def test_what_is_not_followed(sound: bytes) -> None:
    entries = np.frombuffer(sound, np.uint8)[SHAPE.entry_at(1) : SHAPE.entry_at(KEYS + 1)]
    heads = np.zeros(SHAPE.slots, np.int32)
    for first, last, some in ((2, 0, entries), (1, 1 << 40, entries), (0, 0, entries[:0])):
        assert NATIVE.follow_entries(some, first, last, heads) is None
    assert NATIVE.follow_entries(entries[1:], 1, 0, heads) is None
    assert NATIVE.follow_entries(entries, 1, 0, heads[:0]) is None
    assert NATIVE.follow_entries(entries, (1 << 31) - 5, 0, heads) is None
    assert not heads.any()
    heads.flags.writeable = False
    assert NATIVE.follow_entries(entries, 1, 0, heads) is None
