"""Queues and checkpoint are compared with the log: all faults are reported, and nothing else."""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import SEGMENT, a_store, fill, open_small, overwrite, tree
from lakelog import Message
from lakelog.files.checkpoint import read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks.dispatching import Problem
from lakelog_doctor.check import check, check_checkpoint

UNIT = struct.Struct(">qiq")
ENTRIES = 30
COUNT = 100
SETTINGS: dict[str, Any] = {"plugins": [], "consume_queue": {"file_entries": ENTRIES}}


def problems_of(store: Path) -> list[Problem]:
    return list(check(store, index=False, segment_size_bytes=SEGMENT, **SETTINGS))


def found(store: Path) -> list[Problem]:
    before = tree(store)
    problems = problems_of(store)
    assert tree(store) == before
    return problems


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store: 100 records, in a queue of four files of 30 units."""
    a_store(tmp_path / "store", COUNT, consume_queue=SETTINGS["consume_queue"])
    return tmp_path / "store"


def queue_file(store: Path, number: int) -> Path:
    return sorted((store / "consumequeue" / "t" / "0").iterdir())[number]


def units_of(store: Path, file: int) -> list[tuple[int, int, int]]:
    return list(UNIT.iter_unpack(queue_file(store, file).read_bytes()))


def write_unit(store: Path, file: int, at: int, *unit: int) -> Path:
    path = queue_file(store, file)
    data = bytearray(path.read_bytes())
    UNIT.pack_into(data, at * UNIT.size, *unit)
    path.write_bytes(data)
    return path


def test_a_wrong_unit_is_told_with_its_place(store: Path) -> None:
    assert found(store) == []
    for file, at in ((0, 0), (1, 7), (2, ENTRIES - 1)):
        path, (offset, size, code) = queue_file(store, file), units_of(store, file)[at]
        for unit in ((offset, size + 1, code), (offset, size, code + 1)):
            write_unit(store, file, at, *unit)
            (problem,) = found(store)
            assert (problem.path, problem.position) == (path, at * UNIT.size)
            assert problem.what == "the unit differs from its record"
            assert problem.expected == f"offset={offset} size={size} tags_code={code}"
            assert problem.found == f"offset={unit[0]} size={unit[1]} tags_code={unit[2]}"
        for wrong in (-1, 3, 1 << 50):
            write_unit(store, file, at, wrong, size, code)
            problems = found(store)
            assert (path, at * UNIT.size) in {(each.path, each.position) for each in problems}
            assert len(problems) <= 2
        write_unit(store, file, at, offset, size, code)
    assert found(store) == []


def test_what_is_missing_is_one_problem(store: Path) -> None:
    def check_missing(path: Path, at: int, said: str) -> None:
        (problem,) = found(store)
        assert (problem.path, problem.position) == (path, at * UNIT.size)
        assert problem.what == "units are missing"
        assert problem.expected.startswith(f"{said} on")

    path = queue_file(store, 1)
    before = path.read_bytes()
    for at in (4, 5, 6):
        write_unit(store, 1, at, 0, 0, 0)
    check_missing(path, 4, f"3 from queue offset {ENTRIES + 4}")
    path.write_bytes(before)
    (store / "abort").touch()  # as a crash leaves it
    path = queue_file(store, 3)
    path.unlink()
    check_missing(path, 0, f"{COUNT % ENTRIES} from queue offset {3 * ENTRIES}")
    first = queue_file(store, 0)
    shutil.rmtree(store / "consumequeue")
    check_missing(first, 0, f"{COUNT} from queue offset 0")


def test_a_unit_that_was_cut_out_is_missed_once(store: Path) -> None:
    """Later units moved up: each is of a record, but one is missing, and all are misplaced."""
    path = queue_file(store, 3)
    data = path.read_bytes()
    path.write_bytes(data[: 2 * UNIT.size] + data[3 * UNIT.size :] + bytes(UNIT.size))
    first = found(store)[0]
    assert (first.what, first.position) == ("units are missing", 2 * UNIT.size)
    assert first.expected.startswith("1 from")


def test_a_unit_too_much_is_told(store: Path) -> None:
    used = COUNT % ENTRIES
    offset, size, code = units_of(store, 3)[used - 1]
    path = write_unit(store, 3, used, offset + size, size, code)
    (problem,) = found(store)
    assert (problem.path, problem.position) == (path, used * UNIT.size)
    assert "does not belong to a whole record" in problem.what


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), "the file has a wrong length"),
        (
            lambda path: path.rename(path.with_name(f"{int(path.name) + 1:020}")),
            "no file can start there, and its queue is not compared",
        ),
        (Path.unlink, "files are missing before this one"),
    ],
    ids=["cut", "renamed", "gone"],
)
def test_names_and_lengths_of_files_are_looked_at(
    store: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(queue_file(store, 1))
    assert said in {each.what for each in found(store)}


def test_units_of_damaged_records_are_no_problem(store: Path) -> None:
    """The damage is one of the log; the units are those that a rebuild could not make."""
    for at in (3, 4):
        overwrite(store, units_of(store, 1)[at][0] + 120, b"!")
    assert found(store) == []


def test_beside_a_living_owner_only_damage_is_a_problem(tmp_path: Path) -> None:
    path, stop = tmp_path / "store", threading.Event()
    with open_small(path, consume_queue=SETTINGS["consume_queue"]) as owner:
        fill(owner, 5)

        def write() -> None:
            while not stop.wait(0.002):
                owner.put_batch([Message("t", b"x" * 50, queue_id=n % 5) for n in range(64)])

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(8):
                assert problems_of(path) == []
        finally:
            stop.set()
            thread.join()
        owner.wait_dispatched()
        spoilt = write_unit(path, 0, 3, 5, 5, 5)
        assert {each.path for each in problems_of(path)} == {spoilt}


def test_a_checkpoint_that_claims_too_much_is_told(tmp_path: Path) -> None:
    files, path = RealFileSystem(), tmp_path / "store"
    last = a_store(path, 10)[-1]
    closed = path, last.end_offset, last.store_timestamp_ms
    assert list(check_checkpoint(*closed)) == []
    right = read_checkpoint(files, path)
    times = ("physic_timestamp_ms", 0), ("logics_timestamp_ms", 8), ("index_timestamp_ms", 16)
    for field, position in (*times, ("confirm_offset", 32)):
        too_much = 1 + (last.end_offset if position == 32 else last.store_timestamp_ms)
        write_checkpoint(files, path, right._replace(**{field: too_much}))
        (problem,) = check_checkpoint(*closed)
        assert (problem.path, problem.position) == (path / "checkpoint", position)
        assert problem.found == str(too_much)
    with open_small(path):
        assert list(check_checkpoint(*closed)) == []  # its owner moves it


def test_a_checkpoint_that_is_missing_or_cut_is_told(tmp_path: Path) -> None:
    end = a_store(tmp_path, 10)[-1].end_offset
    file = tmp_path / "checkpoint"
    file.write_bytes(bytes(39))
    (cut,) = check_checkpoint(tmp_path, end, 1 << 60)
    assert cut.found == "39 bytes"
    file.unlink()
    (missing,) = check_checkpoint(tmp_path, end, 1 << 60)
    assert missing.found == "no file"
    assert list(check_checkpoint(tmp_path, 0, 0)) == []
