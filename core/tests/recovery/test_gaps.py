"""A hole that a crash may have made is filled with records: nothing is built upon it.

The last sync came behind the fifth record: the checkpoint vouches for these. The machine stopped
when eleven were in the log, and lost the seventh and the eighth.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

from core.tests.recovery.support import (
    StoppingFiles,
    crash,
    flip,
    kept_lines,
    log_bytes,
    offsets,
    quarantine,
    recover_small,
    starts,
    zero,
)
from core.tests.store.support import SEGMENT, fill, open_small, refused
from lakelog import Message, PutResult
from lakelog.errors import BadSegment
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.state.checkpoint import read_checkpoint, write_checkpoint
from lakelog.recovery.filler import FILLER_TOPIC
from lakelog_testing.copies import copy_store
from plugins.tools.tests.doctor.repair_support import sound

FILES = RealFileSystem()


@pytest.fixture
def puts(tmp_path: Path) -> list[PutResult]:
    """A store in ``store``."""
    path = tmp_path / "store"
    with open_small(path) as store:
        before = fill(store, 5)
    checkpoint = read_checkpoint(FILES, path)
    time.sleep(0.002)  # no store time of the one is one of the others
    with open_small(path) as store:
        behind = fill(store, 6)
    write_checkpoint(FILES, path, checkpoint)
    crash(path)
    zero(path, behind[1].physical_offset, behind[1].end_offset)
    flip(path, behind[2])
    return before + behind


def whole(puts: list[PutResult]) -> list[int]:
    return starts([*puts[:6], *puts[8:]])


def test_it_is_filled(tmp_path: Path, puts: list[PutResult]) -> None:
    path, gap = tmp_path / "store", (puts[6].physical_offset, puts[7].end_offset)
    before = log_bytes(path)[slice(*gap)]
    dry = recover_small(path, dry_run=True)
    assert log_bytes(path)[slice(*gap)] == before
    report = recover_small(path)
    assert (report.damage, report.end_offset) == ((), puts[-1].end_offset)
    assert [(each.offset, each.end_offset) for each in report.cut] == [gap]
    assert list(quarantine(path).values()) == [before]
    assert kept_lines(path)[0]["offset"] == gap[0]
    (mended,) = report.mended
    assert "put filler records in their place" in mended
    assert (dry.damage, dry.mended) == (report.damage, report.mended)
    assert [attrs.evolve(each, path=None) for each in report.cut] == list(dry.cut)
    assert json.loads((path / "lakelog" / "damage.json").read_text()) == {"damage": []}
    assert sound(path)
    assert recover_small(path).changed is False


def test_what_is_left_keeps_its_place_in_the_queue(tmp_path: Path, puts: list[PutResult]) -> None:
    path = tmp_path / "store"
    with open_small(path) as store:
        assert [each for each in offsets(store) if each != puts[6].physical_offset] == whole(puts)
        found = store.get("t", 0, 0, 100).messages
        assert [each.physical_offset for each in found] == whole(puts)
        assert [each.queue_offset for each in found] == [0, 1, 2, 3, 4, 5, 8, 9, 10]
        (filler,) = store.get(FILLER_TOPIC, 0, 0).messages
        assert filler.size == puts[7].end_offset - puts[6].physical_offset
        assert json.loads(filler.body)["lakelog"] == "repaired"
        assert store.put(Message("t", b"next", queue_id=0)).queue_offset == len(puts)
    assert sound(path)


@pytest.mark.parametrize("vouched", ["confirm_offset", "physic_timestamp_ms"])
def test_what_was_durable_is_not_touched(
    vouched: str, tmp_path: Path, puts: list[PutResult]
) -> None:
    """Whoever repairs it may want those bytes, or read them once more."""
    path = tmp_path / "store"
    last = {
        "confirm_offset": puts[-1].end_offset,
        "physic_timestamp_ms": puts[-1].store_timestamp_ms + 1,
    }
    checkpoint = attrs.evolve(read_checkpoint(FILES, path), **{vouched: last[vouched]})
    write_checkpoint(FILES, path, checkpoint)
    before = log_bytes(path)
    report = recover_small(path)
    assert [each.offset for each in report.damage] == [puts[6].physical_offset]
    assert (report.cut, report.mended, log_bytes(path)) == ((), (), before)


def test_refuse_refuses_and_changes_nothing(tmp_path: Path, puts: list[PutResult]) -> None:
    path = tmp_path / "store"
    before = log_bytes(path)
    with refused(path, BadSegment, "on_damage"):
        open_small(path, on_damage="refuse")
    assert log_bytes(path) == before
    assert recover_small(path, on_damage="truncate").end_offset == puts[5].end_offset


@pytest.fixture
def wide(tmp_path: Path) -> list[PutResult]:
    """A store in ``wide`` that lost the end of a segment, and the start of the next one."""
    path = tmp_path / "wide"
    with open_small(path) as store:
        puts = fill(store, 110)
    (path / "checkpoint").unlink()
    crash(path)
    second = next(at for at, each in enumerate(puts) if each.physical_offset == SEGMENT)
    zero(path, puts[second - 2].physical_offset, puts[second + 1].end_offset)
    return [each for each in puts if each not in puts[second - 2 : second + 2]]


def test_one_that_goes_over_segments(tmp_path: Path, wide: list[PutResult]) -> None:
    report = recover_small(tmp_path / "wide")
    assert (report.damage, report.end_offset) == ((), wide[-1].end_offset)
    assert len(report.mended) == 2
    assert sound(tmp_path / "wide")


SOME = range(2, 200, 23)
ALL = pytest.param(range(200), marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("numbers", [SOME, ALL])
def test_a_recovery_that_stops_anywhere(
    numbers: range, tmp_path: Path, puts: list[PutResult]
) -> None:
    """The next one fills what is left, and cuts nothing that was proved before."""
    _stop_at(numbers, tmp_path / "store", whole(puts))


@pytest.mark.parametrize("numbers", [SOME, ALL])
def test_one_that_stops_between_two_segments(
    numbers: range, tmp_path: Path, wide: list[PutResult]
) -> None:
    """What is left of the hole is shorter then, and would prove less of what is behind it."""
    _stop_at(numbers, tmp_path / "wide", starts(wide))


def _stop_at(numbers: range, model: Path, due: list[int]) -> None:
    stopped = 0
    for number in numbers:
        path = copy_store(model, model.with_name(str(number)))
        files = StoppingFiles(number)
        with suppress(Exception):  # whatever it turns into: the machine is down
            recover_small(path, files=files)
        stopped += files.stopped
        assert recover_small(path).damage == (), files.seen[-1:]
        assert sound(path), files.seen[-1:]
        with open_small(path) as store:
            found = store.get("t", 0, 0, 999).messages
            assert [each.physical_offset for each in found] == due, files.seen[-1:]
    assert stopped > len(numbers) // 4
