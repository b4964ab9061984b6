"""Units of ``consumequeue_ext``: a plain Python model, rolled files, bitmaps, bad addresses."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.files.ext import LOWEST, MAX_OFFSET, ExtFiles
from lakelog_queues.units.tags import is_address
from plugins.queues.tests.consumequeue.support import SMALL, batch_of, queues

HEAD = Struct(">hqqh")
FILE_BYTES = 110  # five units, six bytes left

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(LONGS, LONGS), max_size=13),
        st.just("restart"),
        st.integers(0, 1000),  # truncate behind a unit
        st.none(),  # drop everything
    ),
    max_size=12,
)


def opened(folder: Path, *, read_only: bool = False, size: int = FILE_BYTES) -> ExtFiles:
    ext = ExtFiles(RealFileSystem(), folder / "ext", size, read_only=read_only)
    ext.load()
    return ext


def longs(values: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def expected_files(units: list[tuple[int, int]]) -> dict[str, bytes]:
    """The files of these units by RocketMQ's rules."""
    found: dict[str, bytes] = {}
    for at in range(0, len(units), 5):
        data = b"".join(HEAD.pack(20, *unit, 0) for unit in units[at : at + 5])
        if at + 5 < len(units):
            data += b"\xff\xff"
        found[f"{at // 5 * FILE_BYTES:020d}"] = data.ljust(FILE_BYTES, b"\0")
    return found


def on_disk(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "ext").glob("*")}


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_files_and_answers_are_those_of_a_plain_model(
    steps: list[list[tuple[int, int]] | str | int | None],
) -> None:
    with TemporaryDirectory() as name:
        folder, units, addresses = Path(name), list[tuple[int, int]](), list[int]()
        ext, reader = opened(folder), opened(folder, read_only=True)
        for step in steps:
            if isinstance(step, list):
                got = ext.append(longs([a for a, _ in step]), longs([b for _, b in step]))
                units += step
                addresses += got.tolist()
            elif step == "restart":
                ext.close()
                ext = opened(folder)
            elif step is None:
                ext.truncate_after(None)
                units, addresses = [], []
            elif isinstance(step, int) and units:
                kept = step % len(units)
                ext.truncate_after(addresses[kept])
                units, addresses = units[: kept + 1], addresses[: kept + 1]
            places = [at // 5 * FILE_BYTES + at % 5 * 20 for at in range(len(units))]
            assert addresses == [place + LOWEST for place in places]
            assert on_disk(folder) == expected_files(units)
            assert ext.end == reader.end == (places[-1] + 20 if places else 0)
            for each in (ext, reader):
                codes, times = each.resolve(longs(addresses[::-1] + addresses))
                assert list(zip(codes.tolist(), times.tolist(), strict=True)) == (
                    units[::-1] + units
                )
        ext.close()
        reader.close()


@given(st.lists(st.tuples(LONGS, LONGS, st.binary(max_size=40)), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_units_with_bitmaps_are_read_and_passed(units: list[tuple[int, int, bytes]]) -> None:
    parts = [HEAD.pack(20 + len(bits), code, time, len(bits)) + bits for code, time, bits in units]
    places = np.cumsum([0] + [len(part) for part in parts])
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ext").mkdir()
        (folder / "ext" / f"{0:020d}").write_bytes(b"".join(parts).ljust(2000, b"\0"))
        ext = opened(folder, size=2000)
        assert ext.end == places[-1]
        codes, times = ext.resolve(places[:-1] + LOWEST)
        assert codes.tolist() == [code for code, _, _ in units]
        assert times.tolist() == [time for _, time, _ in units]
        ext.truncate_after(int(places[0]) + LOWEST)
        assert ext.end == places[1]
        assert ext.append(longs([7]), longs([8])).tolist() == [int(places[1]) + LOWEST]
        ext.close()


@pytest.mark.parametrize("place", [20, 10, 100, 109, FILE_BYTES, 5 * FILE_BYTES])
def test_an_address_at_which_no_unit_stands_is_refused(tmp_path: Path, place: int) -> None:
    ext = opened(tmp_path)
    ext.append(longs([1]), longs([2]))
    with pytest.raises(CorruptQueue, match=f"offset {place} ") as caught:
        ext.resolve(longs([LOWEST, place + LOWEST]))
    assert str(caught.value.path).endswith(f"{place // FILE_BYTES * FILE_BYTES:020d}")
    with pytest.raises(CorruptQueue, match=f"offset {place} "):
        ext.truncate_after(place + LOWEST)
    assert ext.end == 20
    ext.close()


def test_a_reader_makes_nothing(tmp_path: Path) -> None:
    reader = opened(tmp_path, read_only=True)
    with pytest.raises(CorruptQueue, match="2598919 is not the address"):
        reader.resolve(longs([LOWEST, 2598919]))
    assert (reader.end, list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize("names", [{110: 109}, {0: 110, 220: 110}, {55: 110}])
def test_files_that_do_not_fit_are_refused(tmp_path: Path, names: dict[int, int]) -> None:
    (tmp_path / "ext").mkdir()
    for offset, length in names.items():
        (tmp_path / "ext" / f"{offset:020d}").write_bytes(bytes(length))
    with pytest.raises(CorruptQueue, match="rebuild the queues"):
        opened(tmp_path)


def test_where_no_address_is_left_the_tags_code_itself_is_given(tmp_path: Path) -> None:
    size = 1 << 12
    base = MAX_OFFSET // size * size
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / f"{base:020d}").write_bytes(bytes(size))
    ext = opened(tmp_path, size=size)
    room = (MAX_OFFSET - base) // 20
    got = ext.append(longs(range(room + 3)), longs(range(room + 3)))
    are_addresses = is_address(got)
    assert are_addresses[: min(room, (size - 4) // 20)].all()
    assert got[-3:].tolist() == [room, room + 1, room + 2]
    ext.close()


def test_a_file_that_units_fill_exactly_keeps_room_for_its_end(tmp_path: Path) -> None:
    made = opened(tmp_path, size=80)
    addresses = made.append(longs(range(9)), longs(range(9)))
    made.close()
    assert [len(data) for data in on_disk(tmp_path).values()] == [80] * 3
    again = opened(tmp_path, size=80)
    assert again.resolve(addresses)[0].tolist() == list(range(9))
    again.close()


def test_codes_of_the_units_that_are_left_stay(tmp_path: Path) -> None:
    """Three units fill an extension file, and ten a file of the queue."""
    settings = type(SMALL)(file_entries=10, ext_enabled=True, ext_file_size_bytes=64)
    batch = batch_of([("t", f"TAGS\x01tag{at}\x02", b"") for at in range(25)])
    made = queues(tmp_path, settings)
    made.dispatch(batch)
    expected = made.units(("t", 0), 20, 5).tags_codes.tolist()
    assert made.remove_before(int(batch.physical_offsets[20])) == 2 + 6
    assert made.units(("t", 0), 20, 5).tags_codes.tolist() == expected
    made.close()
