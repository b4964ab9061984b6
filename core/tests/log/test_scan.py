"""Reading over damage: what is whole is read, what is not is named and never given out."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import attrs
import pytest

import lakelog
from core.tests.store.support import (
    SEGMENT,
    FaultyFiles,
    a_record_of,
    a_store,
    fill,
    is_eio,
    open_small,
    overwrite,
    read_small,
    segments,
    tree,
)
from lakelog import Message, PutResult
from lakelog.errors import BadSegment, OffsetOutOfRange, ReadFailed
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import AT_MAGIC
from lakelog.format.record_batch import Damage
from lakelog.log.log_reader import LogReader
from lakelog.log.sources import Extent, FileExtent, FileSource, NoGapSource

pytestmark = pytest.mark.both_ways


def read(path: Path) -> tuple[list[int], list[Damage]]:
    damage: list[Damage] = []
    with read_small(path, segment_size_bytes=SEGMENT) as store:
        found = [each.physical_offset for each in store.scan(on_damage=damage.append)]
    return found, damage


def flip(path: Path, offset: int, bit: int) -> bytes:
    data = (path / "commitlog" / f"{offset - offset % SEGMENT:020d}").read_bytes()
    byte = data[offset % SEGMENT]
    overwrite(path, offset, bytes([byte ^ 1 << bit]))
    return bytes([byte])


def places(results: Sequence[PutResult]) -> list[int]:
    return [each.physical_offset for each in results]


# Offsets within a record: the fields that neither checksum nor lengths cover are left out, for
# without the record checksum nobody can know them.
FIELDS = {"size": 0, "magic": 4, "crc": 8, "offset": 28, "body length": 84, "body": 88}


@pytest.mark.sample(12)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("which", [0, 1, 30, 32, 33, 98, 99])
def test_a_flipped_bit(field: str, which: int, tmp_path: Path) -> None:
    results = a_store(tmp_path)
    bad = results[which]
    for bit in (0, 6):
        at = bad.physical_offset + FIELDS[field] + (2 if field in ("size", "body length") else 0)
        byte = flip(tmp_path, at, bit)
        found, damage = read(tmp_path)
        assert found == [each for each in places(results) if each != bad.physical_offset]
        (one,) = damage
        assert one.offset == bad.physical_offset
        assert one.path is not None
        assert int(one.path.name) == bad.physical_offset // SEGMENT * SEGMENT
        if which != 99:
            assert one.end_offset == bad.end_offset
        assert str(one.offset) in str(one)
        overwrite(tmp_path, at, byte)
    assert read(tmp_path) == (places(results), [])


def test_any_flipped_bit_with_record_checksums(tmp_path: Path) -> None:
    results = a_store(tmp_path, record_crc=True)
    chance = random.Random(5)
    for _ in range(50):
        bad = chance.choice(results)
        at = chance.randrange(bad.physical_offset, bad.end_offset)
        byte = flip(tmp_path, at, chance.randrange(8))
        found, damage = read(tmp_path)
        missing = set(places(results)) - set(found)
        # A name `__CRC32#` that is broken is an ordinary property again.
        in_name = bad.end_offset - 20 <= at < bad.end_offset
        assert missing == {bad.physical_offset} or (in_name and not missing), at
        assert [each.offset for each in damage] == sorted(missing)
        overwrite(tmp_path, at, byte)
    assert read(tmp_path) == (places(results), [])


def test_damage_at_several_places(tmp_path: Path) -> None:
    results = a_store(tmp_path)
    bad = [results[number] for number in (3, 4, 10, 50, 98)]
    for each in bad:
        overwrite(tmp_path, each.physical_offset + 20, os.urandom(200))
    found, damage = read(tmp_path)
    assert found == [each for each in places(results) if each not in places(bad)]
    assert [(each.offset, each.end_offset) for each in damage] == [
        (bad[0].physical_offset, bad[1].end_offset),
        *((each.physical_offset, each.end_offset) for each in bad[2:]),
    ]


@pytest.mark.parametrize("garbage", [b"\x01", b"garbage" * 50, bytes(3000) + b"\xff"])
def test_a_tail_of_garbage(garbage: bytes, tmp_path: Path) -> None:
    results = a_store(tmp_path)
    end = results[-1].end_offset
    overwrite(tmp_path, end, garbage)
    before = tree(tmp_path)
    found, damage = read(tmp_path)
    assert found == places(results)
    (one,) = damage
    assert (one.offset, one.end_offset) == (end, end + len(garbage))
    with read_small(tmp_path) as reader:
        assert reader.max_offset == end
    assert tree(tmp_path) == before


def test_what_is_left_over_from_an_older_log_is_not_read(tmp_path: Path) -> None:
    """Behind damage, a record that was stored earlier than the last one is no part of the log."""
    results = a_store(tmp_path)
    path = segments(tmp_path)[-1]
    data = bytearray(path.read_bytes())
    last = results[-1]
    at = last.physical_offset % SEGMENT
    record = data[at : at + last.size]
    place = at + last.size + 64
    record[28:36] = (last.physical_offset + last.size + 64).to_bytes(8, "big")
    record[56:64] = (last.store_timestamp_ms - 1).to_bytes(8, "big")
    data[place : place + last.size] = record
    path.write_bytes(data)
    found, damage = read(tmp_path)
    assert found == places(results)
    assert len(damage) == 1


def test_the_tail_of_a_living_owner_is_not_reported(tmp_path: Path) -> None:
    """It is writing there."""
    with open_small(tmp_path) as owner:
        results = fill(owner, 10)
        overwrite(tmp_path, results[-1].end_offset, b"\x00\x00\x01\xff\xda\xa3\x20\xa7half")
        assert read(tmp_path) == (places(results), [])
        overwrite(tmp_path, results[4].physical_offset, b"\xff")
        found, damage = read(tmp_path)
        assert len(found) == 9
        assert [each.offset for each in damage] == [results[4].physical_offset]
        overwrite(tmp_path, results[-1].end_offset, bytes(12))
    assert len(read(tmp_path)[1]) == 1


def test_a_record_across_the_border_of_two_searches_is_found(tmp_path: Path) -> None:
    """A search reads 1 MiB at once; the magic number of the next record begins 2 bytes before."""
    with open_small(tmp_path, segment_size_bytes=4 << 20) as store:
        long = store.put(a_record_of((1 << 20) - 2 - AT_MAGIC))
        behind = fill(store, 3)
    with segments(tmp_path)[0].open("r+b") as file:
        file.seek(long.physical_offset + 500)
        file.write(b"\x00")
    with read_small(tmp_path, segment_size_bytes=4 << 20) as store:
        assert [each.physical_offset for each in store.scan()] == places(behind)


def test_a_record_in_the_body_of_a_damaged_one_is_no_message(tmp_path: Path) -> None:
    """Somebody sent a copy of a record; it is whole, but states another place."""
    results = a_store(tmp_path, 3)
    copy = bytearray(segments(tmp_path)[0].read_bytes()[: results[0].size])
    copy[56:64] = (results[-1].store_timestamp_ms + 1_000).to_bytes(8, "big")
    with open_small(tmp_path) as store:
        carrier = store.put(Message("t", bytes(copy) + b"more", queue_id=0))
        behind = fill(store, 2)
    flip(tmp_path, carrier.physical_offset + carrier.size - 6, 0)
    found, damage = read(tmp_path)
    assert found == places(results + behind)
    assert [(each.offset, each.end_offset) for each in damage] == [
        (carrier.physical_offset, carrier.end_offset)
    ]


def test_noted_damage_counts_only_while_its_bytes_are_unchanged(tmp_path: Path) -> None:
    """The second of two damaged records was restored, and the first one is damaged otherwise."""
    results = a_store(tmp_path, 10)
    first, second = results[3], results[4]
    before = segments(tmp_path)[0].read_bytes()[second.physical_offset : second.end_offset]
    for each in (first, second):
        overwrite(tmp_path, each.physical_offset, b"\xff" * 20)
    with pytest.raises(BadSegment):
        open_small(tmp_path, on_damage="refuse").close()
    lakelog.recover(tmp_path, plugins=[], segment_size_bytes=SEGMENT, full=True)
    assert len(read(tmp_path)[1]) == 1
    overwrite(tmp_path, first.physical_offset, b"\xee" * 20)
    overwrite(tmp_path, second.physical_offset, before)
    found, damage = read(tmp_path)
    assert found == [each for each in places(results) if each != first.physical_offset]
    assert [(each.offset, each.end_offset) for each in damage] == [
        (first.physical_offset, first.end_offset)
    ]


def test_a_failed_read_of_a_segment_raises_read_failed(tmp_path: Path) -> None:
    a_store(tmp_path, 40)
    files = FaultyFiles()
    with read_small(tmp_path, files=files, segment_size_bytes=SEGMENT) as store:
        files.failing.add("read_at")
        for call in (
            lambda: list(store.scan()),
            lambda: list(store.scan_pieces()),
            lambda: store.look_up(0),
        ):
            with pytest.raises(ReadFailed) as caught:
                call()
            assert is_eio(caught.value.__cause__)


class UnlistedFiles(RealFileSystem):
    """Folders cannot be listed any more, for lack of descriptors."""

    fails = False

    def list(self, path: Path) -> list[tuple[str, int]]:
        if self.fails:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return super().list(path)


def test_a_failed_step_of_a_scan_raises_read_failed(tmp_path: Path) -> None:
    """A scan that does not know the end of the log looks for further segments at last."""
    results = a_store(tmp_path, 40)
    (tmp_path / "lakelog" / "clean-stop.json").unlink()
    files = UnlistedFiles()
    with read_small(tmp_path, files=files, segment_size_bytes=SEGMENT) as store:
        found = store.scan()
        assert next(found).physical_offset == results[0].physical_offset
        files.fails = True
        with pytest.raises(ReadFailed, match="limit of open files"):
            list(found)


def test_without_a_listener_damage_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = a_store(tmp_path, 10)
    flip(tmp_path, results[2].physical_offset + 100, 0)
    with read_small(tmp_path) as store:
        assert len(list(store.scan())) == 9
    (line,) = caplog.messages
    assert str(results[2].physical_offset) in line


class AllGone:
    """A log all of whose files went away between the look at their folder and their opening."""

    known_damage: Mapping[int, Damage] = MappingProxyType({})

    def starts(self) -> list[int]:
        return []

    def extents(self, start: int) -> Iterator[Extent]:
        return iter(())


def test_a_log_whose_files_all_went_before_they_were_opened_is_no_empty_one() -> None:
    assert list(NoGapSource(AllGone(), lambda: 0).extents(0)) == []
    with pytest.raises(OffsetOutOfRange, match="deleted by retention"):
        list(NoGapSource(AllGone(), lambda: 4096).extents(0))


SEGMENT_BYTES = 1 << 20
COUNT = 300


class HalfWritten(FileSource):
    """The first reads see zeros where the owner has not yet copied a record to."""

    def __init__(self, path: Path, hole: int, looks: int) -> None:
        super().__init__(RealFileSystem(), path / "commitlog", SEGMENT_BYTES)
        self.hole = hole
        self.looks = looks

    def extents(self, start: int) -> Generator[FileExtent, None, None]:
        for extent in super().extents(start):
            whole = self.looks <= 0
            self.looks -= 1
            yield extent if whole else _Holed(extent, self.hole)


class _Holed(FileExtent):
    def __init__(self, extent: FileExtent, hole: int) -> None:
        self.__dict__.update(extent.__dict__)
        self._hole = hole

    def read(self, offset: int, length: int) -> memoryview:
        data = bytearray(super().read(offset, length))
        for at in range(self._hole, self._hole + 100):
            if 0 <= at - offset < len(data):
                data[at - offset] = 0
        return memoryview(bytes(data))


@attrs.frozen
class Bounds:
    """Of a reader that goes by the files, or up to where an owner says that it has come."""

    upto: int | None = None

    def minimum(self) -> int:
        return 0

    def end(self) -> int | None:
        return self.upto


MIDDLE = 60_000
LOOKS = {
    "what was half written is read at the second look": (MIDDLE, 1, [True], (COUNT, 0)),
    "damage that stays is reported beside an owner too": (MIDDLE, 9, [True], (COUNT - 1, 1)),
    "there is no second look without an owner": (MIDDLE, 1, [False], (COUNT - 1, 1)),
    "an owner that came meanwhile counts": (MIDDLE, 1, [False, True], (COUNT, 0)),
    "the end that an owner names is looked at again": (-300, 1, [True], (COUNT, 0)),
    "damage at that end is no half record": (-300, 9, [True], (COUNT - 1, 1)),
}


@pytest.mark.parametrize("what", LOOKS)
def test_what_was_seen_half_written_is_looked_at_again(tmp_path: Path, what: str) -> None:
    hole, looks, living, expected = LOOKS[what]
    with lakelog.open(
        tmp_path, plugins=[], segment_size_bytes=SEGMENT_BYTES, flush="none"
    ) as store:
        store.put_batch([Message("t", b"y" * 500) for _ in range(COUNT)])
        end = store.max_offset
    bounds = Bounds(end) if hole < 0 else Bounds()
    source = HalfWritten(tmp_path, hole if hole > 0 else end + hole, looks)
    answers, damage = iter(living), list[object]()
    reader = LogReader(source, bounds, lambda: next(answers, living[-1]))
    found = sum(1 for _ in reader.messages(None, None, damage.append))
    assert (found, len(damage)) == expected
