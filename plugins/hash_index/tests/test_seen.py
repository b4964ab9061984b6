"""The progress through a log without keys is known at the next open of the same log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakelog.format.record_batch import RecordBatch
from lakelog_hash_index import coverage
from lakelog_hash_index.owner import OwnerIndex
from plugins.hash_index.tests.support import (
    Rec,
    batch_of,
    find,
    index_paths,
    owner,
    poke,
    reader,
    resumed,
    write_log,
)

pytestmark = pytest.mark.both_ways

KEYLESS = [Rec()] * 100


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "EVERY_BYTES", 3_000)
    monkeypatch.setattr(coverage, "AT_THE_END_BYTES", 500)


def note(path: Path) -> Path:
    return path / "lakelog" / "index-seen.json"


def dispatched(path: Path, batch: RecordBatch, portion: int = 10) -> OwnerIndex:
    """An owner of a log of ``batch``, whose index has received all of it in portions."""
    write_log(path, batch)
    index = owner(path)
    start = index.resume(0, batch.end_offset)
    known = int((batch.physical_offsets < start).sum())
    for at in range(known, len(batch), portion):
        index.dispatch(batch[at : at + portion])
    return index


def where(index: Any, batch: RecordBatch) -> int:
    found: int = index.resume(0, batch.end_offset)
    index.close()
    return found


def test_a_log_without_keys_is_not_read_again(tmp_path: Path) -> None:
    batch = batch_of(KEYLESS)
    dispatched(tmp_path, batch).close()
    assert where(reader(tmp_path), batch) == batch.end_offset
    assert where(owner(tmp_path), batch) == batch.end_offset
    keyed = tmp_path / "keyed"
    dispatched(keyed, batch_of([Rec.keyed(f"k{n}") for n in range(200)])).close()
    assert not note(keyed).exists()


def test_one_that_crashed_is_read_from_what_was_noted(tmp_path: Path) -> None:
    batch = batch_of(KEYLESS)
    dispatched(tmp_path, batch)
    (tmp_path / "abort").touch()
    found = where(owner(tmp_path), batch)
    assert 0 < found < batch.end_offset
    assert batch.end_offset - found < 4_000
    assert where(reader(tmp_path), batch) == found


@pytest.mark.parametrize("crashed", [False, True])
def test_one_key_long_ago(tmp_path: Path, crashed: bool) -> None:
    batch = batch_of([Rec(), Rec.keyed("a"), *KEYLESS])
    index = dispatched(tmp_path, batch)
    if crashed:
        (tmp_path / "abort").touch()
    else:
        index.close()
    again = owner(tmp_path)
    assert again.resume(0, batch.end_offset) > batch.end_offset - 4_000
    assert find(again, "a") == [int(batch.physical_offsets[1])]
    again.close()


def test_keys_that_come_later_are_in_the_index(tmp_path: Path) -> None:
    before = batch_of(KEYLESS)
    dispatched(tmp_path, before).close()
    batch = batch_of([*KEYLESS, Rec.keyed("late"), *KEYLESS])
    write_log(tmp_path, batch)
    for _ in range(2):
        index = resumed(owner(tmp_path), batch)
        assert find(index, "late") == [int(batch.physical_offsets[100])]
        index.close()
    assert find(resumed(reader(tmp_path), batch), "late") == [int(batch.physical_offsets[100])]


# --- records of the progress that do not count ---


def test_another_log_is_read(tmp_path: Path) -> None:
    dispatched(tmp_path, batch_of(KEYLESS)).close()
    longer = batch_of([Rec.keyed("a", time_ms=7), *[Rec(time_ms=7)] * 120])
    write_log(tmp_path, longer)
    assert where(reader(tmp_path), longer) == 0
    index = owner(tmp_path)
    assert index.resume(0, longer.end_offset) == 0
    assert not note(tmp_path).exists()
    index.dispatch(longer)
    assert find(index, "a") == [0]
    index.close()


def test_a_log_that_was_cut_is_read(tmp_path: Path) -> None:
    batch = batch_of(KEYLESS)
    dispatched(tmp_path, batch).close()
    shorter = batch[:50]
    short_end = int(batch.physical_offsets[50])
    index = owner(tmp_path)
    assert index.resume(0, short_end) == 0
    assert not note(tmp_path).exists()
    index.dispatch(shorter)
    index.close()


def test_a_cut_while_it_is_open_is_remembered(tmp_path: Path) -> None:
    batch = batch_of(KEYLESS)
    index = dispatched(tmp_path, batch)
    assert note(tmp_path).exists()
    index.truncate(int(batch.physical_offsets[5]))
    assert not note(tmp_path).exists()
    index.close()
    assert not note(tmp_path).exists()


def test_an_index_that_lost_its_files_is_built_again(tmp_path: Path) -> None:
    batch = batch_of([Rec.keyed("a"), *KEYLESS])
    dispatched(tmp_path, batch).close()
    assert note(tmp_path).exists()
    for path in index_paths(tmp_path):
        path.unlink()
    assert where(reader(tmp_path), batch) == 0
    index = resumed(owner(tmp_path), batch)
    assert find(index, "a") == [0]
    index.close()


def test_a_note_that_cannot_be_right_says_nothing(tmp_path: Path) -> None:
    batch = batch_of(KEYLESS)
    dispatched(tmp_path, batch).close()
    good = note(tmp_path).read_bytes()
    said = json.loads(good)
    crc = said["record"]["crc"] ^ 1
    wrong = [{"offset": -9}, {"size": 1 << 40}, {"size": 0}, {"crc": crc}]
    for content in (
        *("", "[]", "{", '{"version": 2}', '{"version": 1, "end_offset": "x"}'),
        *(json.dumps({**said, "record": {**said["record"], **each}}) for each in wrong),
    ):
        note(tmp_path).write_text(content)
        assert where(reader(tmp_path), batch) == 0, content
    note(tmp_path).write_bytes(good)
    assert where(reader(tmp_path), batch) == batch.end_offset
    poke(tmp_path / "commitlog" / f"{0:020d}", int(batch.physical_offsets[99]) + 60, b"\xff")
    assert where(reader(tmp_path), batch) == 0, "its record was damaged since"
    assert where(owner(tmp_path), batch) == 0


def test_where_there_is_no_room_for_the_note_puts_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(coverage, "write_progress", full)
    dispatched(tmp_path, batch_of(KEYLESS)).close()
    assert "cannot be recorded" in caplog.text


def test_after_a_failed_sync_nothing_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of([Rec.keyed("a"), *KEYLESS])
    write_log(tmp_path, batch)
    index = owner(tmp_path)
    index.resume(0, batch.end_offset)
    index.dispatch(batch[:1])
    with monkeypatch.context() as failing:
        failing.setattr(type(index._appender), "flush", _fail)
        with pytest.raises(OSError, match="sync"):
            index.dispatch(batch[1:])
    index.dispatch(batch[1:])
    index.close()
    assert not note(tmp_path).exists()


def _fail(_self: Any) -> None:
    raise OSError(5, "sync")
