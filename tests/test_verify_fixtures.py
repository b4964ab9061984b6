"""Queues and index of real store directories, compared with their logs: whole ones and spoilt ones.

Each test that spoils a byte names the file and the place where it must be told.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakelog
from lakelog import Message
from lakelog.format.layout import BATCHCONSUMEQUEUE_DIR, CONSUMEQUEUE_DIR, INDEX_DIR
from lakelog.format.record_batch import Damage
from lakelog.hooks.dispatching import Problem
from lakelog_doctor.check import check
from tests.support.commands import invoke
from tests.support.fixtures import DAMAGED, EXACT

if TYPE_CHECKING:
    from tests.support.fixtures import StoreFixture, StoreFixtures

UNIT_BYTES = {CONSUMEQUEUE_DIR: 20, BATCHCONSUMEQUEUE_DIR: 46, INDEX_DIR: 20}
MISSING = "units are missing"
MISSING_KEYS = "keys are missing in the index"
OF_NO_RECORD = "the unit does not belong to a whole record of this queue"
OF_NO_KEY = "the entry has no key in the log"


def problems_of(fixture: StoreFixture) -> list[Problem]:
    return list(check(fixture.store, broker_conf=fixture.folder / "options"))


def files_of(fixture: StoreFixture, folder: str) -> list[Path]:
    found = (fixture.store / folder).rglob("*")
    return sorted(path for path in found if path.is_file() and any(path.read_bytes()))


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", EXACT)
def test_what_the_real_store_closed_cleanly_has_no_problem(
    store_fixtures: StoreFixtures, name: str
) -> None:
    assert problems_of(store_fixtures.get(name)) == []


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [*DAMAGED])
def test_what_is_missing_after_a_crash_is_told(store_fixtures: StoreFixtures, name: str) -> None:
    found = Counter(each.what for each in problems_of(store_fixtures.get(name)))
    lost = {"no_cq": 25, "real_broker_crash": 0}.get(name, 0 if "clean" in name else 19)
    assert found == +Counter({MISSING: lost, MISSING_KEYS: int(lost > 0)})


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [each for each in DAMAGED if "corrupt" not in each])
def test_a_crash_explains_all_that_is_wrong_and_recover_mends_it(
    store_fixtures: StoreFixtures, tmp_path: Path, name: str
) -> None:
    fixture = store_fixtures.copy(name, tmp_path)
    given = ("--broker-conf", str(fixture.folder / "options"))
    done = invoke("verify", str(fixture.store), "--all", *given)
    if name == "truncated_file":
        assert done.exit_code == 1
        assert "the file is truncated: 49009 bytes are left of 65536" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    else:
        assert (done.exit_code, done.stderr) == (0, "")
        assert "crashed, whole; `lakelog recover` mends it" in done.stdout
    assert invoke("recover", str(fixture.store), *given).exit_code == 0
    done = invoke("verify", str(fixture.store), "--all", *given)
    assert f"{fixture.store}: whole" in done.stdout


@pytest.mark.parametrize("name", ["corrupt_early", "corrupt_clean_early", "corrupt_clean_late"])
def test_the_unit_and_the_key_of_a_damaged_record_are_the_damage_of_the_log(
    store_fixtures: StoreFixtures, name: str
) -> None:
    fixture = store_fixtures.get(name)
    told = {each.what for each in problems_of(fixture)}
    assert told.isdisjoint({OF_NO_RECORD, OF_NO_KEY})
    damage = list[Damage]()
    with lakelog.open(fixture.store, mode="read", broker_conf=fixture.folder / "options") as store:
        list(store.scan(on_damage=damage.append))
    assert damage


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        *(("basic", CONSUMEQUEUE_DIR), ("lmq", CONSUMEQUEUE_DIR), ("cqext", CONSUMEQUEUE_DIR)),
        *(("batchcq", BATCHCONSUMEQUEUE_DIR), ("mid", CONSUMEQUEUE_DIR)),
    ],
)
def test_any_bit_of_a_unit_is_missed(
    store_fixtures: StoreFixtures, tmp_path: Path, name: str, folder: str
) -> None:
    fixture, chance = store_fixtures.copy(name, tmp_path), random.Random(4)
    unit_bytes = UNIT_BYTES[folder]
    for _ in range(12):
        path = chance.choice(files_of(fixture, folder))
        data = path.read_bytes().rstrip(b"\x00")
        at, bit = chance.randrange(len(data)), chance.randrange(8)
        if at % unit_bytes >= 42:  # reserved
            continue
        flip(path, at, bit)
        found = problems_of(fixture)
        places = {(each.path, each.position) for each in found}
        assert (path, at - at % unit_bytes) in places, (path, at, bit, found)
        assert len(found) <= 3
        flip(path, at, bit)
    assert problems_of(fixture) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["basic", "mid", "real_broker"])
def test_any_bit_of_an_entry_or_a_slot_is_missed(
    store_fixtures: StoreFixtures, tmp_path: Path, name: str
) -> None:
    fixture, chance = store_fixtures.copy(name, tmp_path), random.Random(5)
    slots_end = 40 + 4 * int(fixture.options["maxHashSlotNum"])
    for _ in range(16):
        path = chance.choice(files_of(fixture, INDEX_DIR))
        at, bit = chance.randrange(40, len(path.read_bytes().rstrip(b"\x00"))), chance.randrange(8)
        if slots_end <= at and ((at - slots_end) // 20 == 0 or 12 <= (at - slots_end) % 20 < 16):
            continue  # entry 0 is never used, and times are not compared
        flip(path, at, bit)
        assert path in {each.path for each in problems_of(fixture)}, (path, at, bit)
        flip(path, at, bit)
    assert problems_of(fixture) == []


def test_codes_that_are_kept_apart_are_looked_up(
    store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.copy("cqext", tmp_path)
    path = fixture.store / "consumequeue_ext" / "TopicB" / "0" / f"{0:020}"
    flip(path, 5 * 20 + 9, 0)  # the last byte of the sixth code
    (problem,) = problems_of(fixture)
    assert problem.path == fixture.store / "consumequeue" / "TopicB" / "0" / f"{0:020}"
    assert problem.position == 5 * 20
    flip(path, 5 * 20 + 9, 0)
    path.write_bytes(path.read_bytes()[:-1])
    assert path in {each.path for each in problems_of(fixture)}


def test_nothing_is_wrong_beside_an_owner_that_writes(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "segment_size_bytes": "64KiB",
        "flush": "none",
        "consume_queue": {"file_entries": 300},
        "hash_index": {"slots": 1000, "entries": 4000},
    }
    stop = threading.Event()
    with lakelog.open(tmp_path / "store", **settings) as owner:

        def write() -> None:
            while not stop.wait(0.01):
                keys = ([f"{number}", "x"] for number in range(40))
                owner.put_batch([Message("t", b"b", keys=key) for key in keys])

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(6):
                assert list(check(tmp_path / "store", **settings)) == []
        finally:
            stop.set()
            thread.join()
    assert list(check(tmp_path / "store", **settings)) == []


def test_files_of_an_index_that_are_gone_or_cut(
    store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.copy("basic", tmp_path)
    first, second, _ = files_of(fixture, INDEX_DIR)
    content = second.read_bytes()
    second.unlink()
    (problem,) = problems_of(fixture)
    assert (problem.path.parent, problem.what) == (fixture.store / "index", MISSING_KEYS)
    second.write_bytes(content[:-1])
    (problem,) = problems_of(fixture)
    assert (problem.path, problem.what) == (second, "the index file has a wrong length")
    second.write_bytes(content)
    first.rename(first.with_name("stray"))
    assert {each.what for each in problems_of(fixture)} == {"it is not an index file", MISSING_KEYS}
