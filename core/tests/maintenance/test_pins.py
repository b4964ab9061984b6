"""Pins: written atomically and durably, read whatever the file has, and the segments they hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.faults import SeenFiles
from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.checksum import Fingerprint
from lakelog.maintenance.pins import Pin, holders, pin_file, read_pins, remove_pin, write_pin

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
