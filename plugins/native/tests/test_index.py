"""One chain of an index file: both ways give the same offsets, or the same damage."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import CorruptIndex
from lakelog.files import RealFileSystem
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.javahash import hash_key
from lakelog_hash_index.shape import ENTRY, HEADER, Shape
from lakelog_hash_index.walk import Wanted, newest_first
from lakelog_native.accelerator import Native
from plugins.hash_index.tests.support import SMALL, Rec, built, index_paths
from plugins.native.tests.support import both

SHAPE = Shape(SMALL.slots, SMALL.entries)
KEYS = [f"k{at % 3}" for at in range(SMALL.entries - 2)]
FOREVER = (0, (1 << 63) - 1)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with chains of several keys, some of them in one slot."""
    path = tmp_path_factory.mktemp("index")
    built(path, [Rec.keyed(key) for key in KEYS])
    return index_paths(path)[0].read_bytes()


def found(path: Path, wanted: Wanted) -> tuple[list[int], str | None]:
    file, offsets = IndexFile(RealFileSystem(), path, SHAPE), list[int]()
    try:
        for offset in newest_first([file], (), wanted, range(1 << 40)):
            offsets.append(offset)  # what came before an error counts
    except CorruptIndex as error:
        return offsets, str(error)
    return offsets, None


@given(data=st.data())
def test_any_damage(
    content: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    bad = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(bad) - 1) | st.integers(0, HEADER.size - 1))
        bad[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("bad") / "20260101000000000"
    path.write_bytes(bad)
    times = st.sampled_from([0, 1, 999, 1_000, 5_000]) | st.integers(0, 1 << 42)
    begin, end = sorted((data.draw(times), data.draw(times | st.just(FOREVER[1]))))
    wanted = Wanted(hash_key("t", data.draw(st.sampled_from([*KEYS, "none"]))), begin, end)
    native, plain = both(partial(found, path, wanted))
    assert native == plain


@pytest.mark.parametrize("key", sorted({*KEYS, "none"}))
def test_a_sound_file_is_walked_natively(content: bytes, tmp_path: Path, key: str) -> None:
    path = tmp_path / "20260101000000000"
    path.write_bytes(content)
    wanted = Wanted(hash_key("t", key), *FOREVER)
    native, plain = both(partial(found, path, wanted))
    assert native == plain
    file = IndexFile(RealFileSystem(), path, SHAPE)
    what = wanted.key_hash, *FOREVER
    assert Native().walk_index(file.map, SHAPE.slots, SHAPE.entries, *what) == native[0]
    assert len(native[0]) == KEYS.count(key)


def test_what_the_accelerator_leaves_alone(content: bytes, tmp_path: Path) -> None:
    native, path = Native(), tmp_path / "20260101000000000"
    path.write_bytes(content)
    file = IndexFile(RealFileSystem(), path, SHAPE).map
    key = hash_key("t", KEYS[0])
    assert native.walk_index(file, SHAPE.slots, SHAPE.entries, key, *FOREVER) is not None
    assert native.walk_index(file, SHAPE.slots, SHAPE.entries + 1, key, *FOREVER) is None
    assert native.walk_index(file, 1 << 62, SHAPE.entries, key, *FOREVER) is None
    assert native.walk_index(file, 0, SHAPE.entries, key, *FOREVER) is None
    assert native.walk_index(file, SHAPE.slots, SHAPE.entries, -1, *FOREVER) is None
    assert native.walk_index(file, SHAPE.slots, SHAPE.entries, key, 0, 1 << 63) is None
    looping = bytearray(content)
    for number in range(1, SHAPE.entries):
        at = SHAPE.entry_at(number)
        looping[at + ENTRY.size - 4 : at + ENTRY.size] = number.to_bytes(4, "big")
    path.write_bytes(looping)
    assert native.walk_index(file, SHAPE.slots, SHAPE.entries, key, *FOREVER) is None
