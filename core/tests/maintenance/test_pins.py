"""Pins: written durably, read whatever the file has, what they hold; and pins of another log."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import attrs
import pytest

from core.tests.maintenance.support import MaintenancePlugin, fill
from core.tests.store.faults import SeenFiles
from core.tests.store.support import SEGMENT
from lakelog import PutResult, Store
from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.checksum import Fingerprint
from lakelog.format.record_batch import RecordBatch
from lakelog.maintenance.pins import (
    Pin,
    PinValidator,
    holders,
    pin_file,
    read_pins,
    remove_pin,
    write_pin,
)

FILES = RealFileSystem()
PIN = Pin("iceberg-1", 4096, 1_000, "iceberg:/lake", Fingerprint(4000, 96, 0xFFFFFFFF))


def test_a_pin_is_read_as_it_was_last_written(tmp_path: Path) -> None:
    bare = Pin("bare", 0, 0)
    assert read_pins(FILES, tmp_path) == ()
    write_pin(FILES, tmp_path, Pin(PIN.name, 1, 1))
    write_pin(FILES, tmp_path, PIN)
    write_pin(FILES, tmp_path, bare)
    assert read_pins(FILES, tmp_path) == (bare, PIN)


def test_it_is_durable_before_it_counts(tmp_path: Path) -> None:
    files = SeenFiles()
    write_pin(FILES, tmp_path, PIN)
    write_pin(files, tmp_path, PIN)
    done = files.named("sync", "rename", "unlink", "sync_dir")
    assert [call for call, _ in done] == ["sync", "rename", "sync_dir"]
    assert done[-1] == ("sync_dir", "followers")


def test_its_removal_is_durable(tmp_path: Path) -> None:
    files = SeenFiles()
    write_pin(FILES, tmp_path, PIN)
    assert remove_pin(files, tmp_path, PIN.name)
    assert files.named() == [("unlink", f"{PIN.name}.json"), ("sync_dir", "followers")]
    assert read_pins(FILES, tmp_path) == ()
    assert not remove_pin(FILES, tmp_path, PIN.name)


def pin_json(**more: Any) -> bytes:
    """The content of a pin's file, with the given members changed."""
    good = {"version": 1, "position": 5, "time_ms": 0, "destination": ""}
    return json.dumps({**good, **more}).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds nothing"),
        (b"{", "damaged"),
        (b'{"version": 2}', "version is 2"),
        (pin_json(position=-1), "damaged"),
        (pin_json(position="5"), "damaged"),
        (pin_json(destination=7), "damaged"),
        (pin_json(fingerprint={"offset": 1}), "damaged"),
    ],
)
def test_what_cannot_be_read_holds_everything_for_ever(
    tmp_path: Path, content: bytes, said: str
) -> None:
    file = pin_file(tmp_path, "broken")
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    (found,) = read_pins(FILES, tmp_path)
    assert found.problem is not None
    assert str(file) in found.problem
    assert said in found.problem
    assert "lakelog pins remove STORE broken" in found.problem
    assert found.holds(1, now_ms=10**15, expires_after_ms=1)


def test_a_pin_that_is_removed_while_one_looks_is_none(tmp_path: Path) -> None:
    class Slow(RealFileSystem):
        def open(self, path: Path, *, write: bool = False, create: bool = False) -> Any:
            remove_pin(FILES, tmp_path, PIN.name)
            return super().open(path, write=write, create=create)

    write_pin(FILES, tmp_path, PIN)
    assert read_pins(Slow(), tmp_path) == ()


def test_a_segment_is_held_until_all_of_it_is_had() -> None:
    assert PIN.holds(4097, now_ms=0)
    assert not PIN.holds(4096, now_ms=0)
    pins = [Pin("b", 10, 0), Pin("a", 10, 0), Pin("far", 99, 0)]
    assert holders(pins, 50, now_ms=0) == ("a", "b")


def test_it_expires_only_where_that_is_set_and_it_was_not_renewed() -> None:
    assert PIN.holds(5000, now_ms=10**15)
    assert PIN.holds(5000, now_ms=2_000, expires_after_ms=1_000)
    assert not PIN.holds(5000, now_ms=2_001, expires_after_ms=1_000)
    assert PIN.holds(5000, now_ms=0, expires_after_ms=0)  # a clock that was set back


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "ä", "a b", "x" * 101])
def test_names_that_no_file_should_have_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name of a pin"):
        Pin(name, 0, 0)
    with pytest.raises(ValueError, match="not a valid name of a pin"):
        remove_pin(FILES, tmp_path, name)


def test_what_a_killed_writer_left_is_removed_and_never_read(tmp_path: Path) -> None:
    folder = pin_file(tmp_path, "x").parent
    folder.mkdir(parents=True)
    mine = folder / f"a.json.{os.getppid()}.tmp"
    left = folder / "a.json.99999999.tmp"  # beyond the greatest number of a process
    for each in (mine, left):
        each.write_bytes(b"{")
    write_pin(FILES, tmp_path, PIN)
    assert sorted(each.name for each in folder.iterdir()) == [mine.name, "iceberg-1.json"]
    assert read_pins(FILES, tmp_path) == (PIN,)


def test_a_failed_write_leaves_the_one_before(tmp_path: Path) -> None:
    class Full(RealFileSystem):
        def rename(self, source: Path, target: Path) -> None:
            raise OSError(28, "No space left on device", str(target))

    write_pin(FILES, tmp_path, PIN)
    with pytest.raises(OSError, match="No space"):
        write_pin(Full(), tmp_path, Pin(PIN.name, 9, 9))
    assert read_pins(FILES, tmp_path) == (PIN,)


def test_what_is_no_file_holds_everything_too(tmp_path: Path) -> None:
    folder = tmp_path / "lakelog" / "followers"
    folder.parent.mkdir()
    folder.touch()
    (pin,) = read_pins(FILES, tmp_path)
    assert (pin.holds(1, 0), "Not a directory" in str(pin.problem)) == (True, True)
    folder.unlink()
    (folder / "a.json").mkdir(parents=True)
    (pin,) = read_pins(FILES, tmp_path)
    assert pin.holds(1, 0)
    assert "Is a directory" in str(pin.problem)
    with pytest.raises(StoreError, match="by hand"):
        remove_pin(FILES, tmp_path, "a")


# --- pins of another log ---


def pinned(store: Store, put: PutResult, now_ms: int) -> tuple[Pin, Fingerprint]:
    """The pin of a follower that has read all messages up to that put."""
    (piece,) = store.scan_pieces(put.physical_offset, put.end_offset)
    assert isinstance(piece, RecordBatch)
    record = piece.record(0)
    last = Fingerprint(put.physical_offset, len(record), zlib.crc32(record))
    return Pin("lake", put.end_offset, now_ms, fingerprint=last), last


def test_a_pin_behind_the_end_of_the_log_holds_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = MaintenancePlugin()
    with plugin.filled(tmp_path) as store:
        write_pin(FILES, tmp_path, Pin("lake", store.max_offset + 1, plugin.clock.now_ms()))
        for _ in range(3):
            report = store.delete_expired()
            assert report.deleted == ()
            assert report.kept is not None
            assert report.kept.reason == "followers still need it: lake"
        told = [each for each in caplog.messages if "is of another log" in each]
        assert len(told) == 1
        assert f"the log ends at {store.max_offset}" in told[0]
        write_pin(FILES, tmp_path, Pin("lake", store.max_offset, plugin.clock.now_ms()))
        assert store.delete_expired().deleted


def test_a_pin_of_a_log_that_went_on_otherwise_holds_everything(tmp_path: Path) -> None:
    """It was cut below the pin, and has grown past it since: the position does not show that."""
    plugin = MaintenancePlugin()
    with plugin.open(tmp_path) as store:
        pin, last = pinned(store, fill(store, 160)[140], plugin.clock.now_ms())
        for offset, size, crc in [
            *((0, 0, 1), (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (SEGMENT, 0, 0))
        ]:
            other = Fingerprint(last.offset + offset, last.size + size, last.crc ^ crc)
            write_pin(FILES, tmp_path, attrs.evolve(pin, fingerprint=other))
            assert store.delete_expired().deleted == ()
        write_pin(FILES, tmp_path, pin)
        assert store.delete_expired().deleted


def test_what_was_deleted_tells_nothing_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = MaintenancePlugin()
    with plugin.open(tmp_path) as store:
        late = [each for each in fill(store, 160) if each.end_offset <= SEGMENT][-1]
        pin, last = pinned(store, late, plugin.clock.now_ms())
        write_pin(FILES, tmp_path, attrs.evolve(pin, position=SEGMENT))
        assert store.delete_expired().deleted
        assert store.min_offset == SEGMENT > late.physical_offset
        behind = attrs.evolve(pin, position=SEGMENT, fingerprint=attrs.evolve(last, crc=0))
        write_pin(FILES, tmp_path, behind)
        store.delete_expired()
    assert "is of another log" not in caplog.text


def test_a_log_that_cannot_be_read_proves_nothing(tmp_path: Path) -> None:
    def broken(_start: int, _end: int) -> list[RecordBatch]:
        raise OSError(5, "Input/output error")

    pin = Pin("lake", 500, 0, fingerprint=Fingerprint(400, 100, 0))
    assert PinValidator(broken).judged(pin, 0, 1000).problem is not None
