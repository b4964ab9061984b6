"""Queues and index are compared with the log: all faults are reported, and nothing else."""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import SEGMENT, a_store, fill, open_small, tree
from lakelog import Message
from lakelog.errors import PluginError
from lakelog_doctor.check import check
from lakelog_doctor.rebuild import rebuild
from lakelog_interfaces.strategies.verifying import Problem

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


def mended(store: Path) -> bool:
    rebuild(
        store,
        index=False,
        flush="none",
        segment_size_bytes=SEGMENT,
        **SETTINGS,
    )
    return found(store) == []


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


def test_a_store_that_is_whole_has_no_problem(store: Path) -> None:
    assert found(store) == []


@pytest.mark.parametrize("at", [0, 7, ENTRIES - 1])
@pytest.mark.parametrize("file", [0, 1, 2])
def test_a_wrong_size_or_code_is_told_with_its_place(store: Path, file: int, at: int) -> None:
    offset, size, code = units_of(store, file)[at]
    for unit in ((offset, size + 1, code), (offset, size, code + 1)):
        path = write_unit(store, file, at, *unit)
        (problem,) = found(store)
        assert (problem.path, problem.position) == (path, at * UNIT.size)
        assert problem.what == "the unit differs from its record"
        assert problem.expected == f"offset={offset} size={size} tags_code={code}"
        assert problem.found == f"offset={unit[0]} size={unit[1]} tags_code={unit[2]}"
    assert mended(store)


@pytest.mark.parametrize("wrong", [-1, 3, 1 << 50])
@pytest.mark.parametrize("at", [0, 7, ENTRIES - 1])
def test_a_wrong_offset_is_told_with_its_place(store: Path, at: int, wrong: int) -> None:
    _, size, code = units_of(store, 1)[at]
    path = write_unit(store, 1, at, wrong, size, code)
    problems = found(store)
    assert (path, at * UNIT.size) in {(each.path, each.position) for each in problems}
    assert len(problems) <= 2
    assert mended(store)


def test_units_that_are_gone_are_one_problem(store: Path) -> None:
    path = queue_file(store, 1)
    for at in (4, 5, 6):
        write_unit(store, 1, at, 0, 0, 0)
    (problem,) = found(store)
    assert (problem.path, problem.position) == (path, 4 * UNIT.size)
    assert problem.what == "units are missing"
    assert problem.expected.startswith(f"3 from queue offset {ENTRIES + 4} on")
    assert mended(store)


def test_a_unit_that_was_cut_out_is_missed_once(store: Path) -> None:
    """Later units moved up: each is of a record, but one is missing, and all are misplaced."""
    path = queue_file(store, 3)
    data = path.read_bytes()
    path.write_bytes(data[: 2 * UNIT.size] + data[3 * UNIT.size :] + bytes(UNIT.size))
    problems = found(store)
    assert problems[0].what == "units are missing"
    assert problems[0].position == 2 * UNIT.size
    assert problems[0].expected.startswith("1 from")
    assert mended(store)


def test_a_unit_too_much_is_told(store: Path) -> None:
    used = COUNT % ENTRIES
    offset, size, code = units_of(store, 3)[used - 1]
    path = write_unit(store, 3, used, offset + size, size, code)
    (problem,) = found(store)
    assert (problem.path, problem.position) == (path, used * UNIT.size)
    assert "does not belong to a whole record" in problem.what
    assert mended(store)


def test_a_queue_of_nothing_is_told(store: Path) -> None:
    folder = store / "consumequeue" / "ghost" / "0"
    folder.mkdir(parents=True)
    ghost = folder / f"{0:020}"
    ghost.write_bytes(UNIT.pack(77, 7, 7) * ENTRIES)
    problems = found(store)
    assert {each.path for each in problems} == {ghost}
    assert len(problems) == ENTRIES
    assert mended(store)


def test_a_queue_that_is_gone_is_one_problem(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (problem,) = found(store)
    assert problem.path == store / "consumequeue" / "t" / "0" / f"{0:020}"
    assert problem.expected.startswith(f"{COUNT} from queue offset 0 on")
    assert mended(store)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _rename(path: Path) -> None:
    path.rename(path.with_name(f"{int(path.name) + 1:020}"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_cut, "the file has a wrong length"),
        (_rename, "no file can start there, and its queue is not compared"),
        (Path.unlink, "files are missing before this one"),
    ],
)
def test_names_and_lengths_of_files_are_looked_at(
    store: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(queue_file(store, 1))
    assert said in {each.what for each in found(store)}
    assert mended(store)


def test_what_a_crash_left_behind_is_missing(store: Path) -> None:
    (store / "abort").touch()
    path = queue_file(store, 3)
    path.unlink()
    (problem,) = found(store)
    assert (problem.path, problem.what) == (path, "units are missing")
    assert problem.expected.startswith(f"{COUNT % ENTRIES} from queue offset {3 * ENTRIES} on")


def test_a_living_owner_is_no_problem(tmp_path: Path) -> None:
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


def test_units_of_damaged_records_are_no_problem(store: Path) -> None:
    """The damage is one of the log; the units are those that a rebuild could not make."""
    first, second = (units_of(store, 1)[at][0] for at in (3, 4))
    for offset in (first, second):
        segment = store / "commitlog" / f"{offset - offset % SEGMENT:020d}"
        data = bytearray(segment.read_bytes())
        data[offset % SEGMENT + 120] ^= 1
        segment.write_bytes(data)
    assert found(store) == []


def test_damage_is_found_beside_a_living_owner(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path, consume_queue=SETTINGS["consume_queue"]) as owner:
        fill(owner, COUNT)
        owner.wait_dispatched()
        spoilt = write_unit(path, 0, 3, 5, 5, 5)
        problems = problems_of(path)
        assert {each.path for each in problems} == {spoilt}


def test_what_cannot_be_checked_is_an_error(store: Path) -> None:
    with pytest.raises(PluginError, match="nothing here can check the index"):
        list(check(store, segment_size_bytes=SEGMENT, **SETTINGS))
