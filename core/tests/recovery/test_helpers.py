"""Other processes that read the sound part of a long log."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from core.tests.recovery.support import a_crashed_store, alter, flip, recover_small, tear
from core.tests.store.support import SEGMENT
from lakelog import PutResult
from lakelog.errors import BadSegment
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import RECORD_CRC_BYTES
from lakelog.log.reading.source import FileSource
from lakelog.recovery import examine as examining
from lakelog.recovery import helpers
from lakelog.recovery.sections import Section, answer, section


def _sections(path: Path) -> list[Section]:
    starts = list(range(0, 4 * SEGMENT, SEGMENT))
    return list(helpers.sections(path / "commitlog", starts, SEGMENT, min_bytes=0))


def _here(path: Path, start: int) -> Section:
    source = FileSource(RealFileSystem(), path / "commitlog", SEGMENT)
    return section(source, start, SEGMENT)


@pytest.fixture
def results(tmp_path: Path) -> list[PutResult]:
    return a_crashed_store(tmp_path)


def test_they_find_what_one_process_finds(tmp_path: Path, results: list[PutResult]) -> None:
    found = _sections(tmp_path)
    assert [each.found.end_offset for each in found] == [
        SEGMENT,
        2 * SEGMENT,
        3 * SEGMENT,
        results[-1].end_offset,
    ]
    assert sum(each.found.records for each in found) == len(results)
    assert found[-1].found.next_offsets == {("t", 0): len(results)}
    assert found == [_here(tmp_path, each.found.start_offset) for each in found]


def test_a_section_ends_before_damage(tmp_path: Path, results: list[PutResult]) -> None:
    flip(tmp_path, results[50])
    assert _here(tmp_path, SEGMENT).found.end_offset == results[49].end_offset


def test_a_section_ends_before_an_older_record(tmp_path: Path, results: list[PutResult]) -> None:
    alter(tmp_path, results[50].physical_offset + 56, lambda _: bytes(7) + b"\x01", 8)
    assert _here(tmp_path, SEGMENT).found.end_offset == results[49].end_offset


def test_a_section_ends_before_a_record_without_the_checksum_that_is_required(
    tmp_path: Path,
) -> None:
    results = a_crashed_store(tmp_path, record_crc=True)
    at = results[50].end_offset - RECORD_CRC_BYTES
    alter(tmp_path, at, lambda data: b"9" * (len(data) - 1) + b"\x02", RECORD_CRC_BYTES)
    assert _sections(tmp_path)[1].found.end_offset == 2 * SEGMENT
    starts = list(range(0, 4 * SEGMENT, SEGMENT))
    folder = tmp_path / "commitlog"
    found = list(helpers.sections(folder, starts, SEGMENT, min_bytes=0, sealed=True))
    assert found[0].found.end_offset == SEGMENT
    assert found[1].found.end_offset == results[49].end_offset


def test_a_process_answers_line_by_line(tmp_path: Path, results: list[PutResult]) -> None:
    folder, parts = str(tmp_path / "commitlog"), [[0, SEGMENT]]
    request = {"directory": folder, "parts": parts, "size_bytes": SEGMENT}
    (line,) = answer(io.StringIO(json.dumps(request) + "\n"))
    assert Section.from_json(line) == _here(tmp_path, 0)
    assert results


def test_few_bytes_are_not_worth_a_process(tmp_path: Path, results: list[PutResult]) -> None:
    assert list(helpers.sections(tmp_path / "commitlog", [0, SEGMENT], SEGMENT)) == []
    assert results


@pytest.mark.parametrize(("reached", "asked"), [(0, False), (100, False), (200, True)])
def test_a_segment_that_is_nearly_empty_is_not_worth_a_process(
    reached: int, asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[object] = []

    def answers(*given: object) -> list[Section]:
        begun.append(given)
        return []

    monkeypatch.setattr(helpers, "_answers", answers)
    monkeypatch.setattr(helpers, "PART_BYTES", SEGMENT // 2)
    at = 7 * SEGMENT
    list(helpers.sections(tmp_path, [at], SEGMENT, 150, reached=at + reached))
    assert bool(begun) == asked


def test_a_process_that_fails_costs_nothing(
    tmp_path: Path, results: list[PutResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert _sections(tmp_path) == []
    assert results


def test_parts_of_a_segment_meet_where_a_record_ends(
    tmp_path: Path, results: list[PutResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "PART_BYTES", SEGMENT // 4)
    found = [each.found for each in _sections(tmp_path)]
    assert len(found) == 16
    used = [each for each in found if each.records]
    assert len(used) > 8
    assert sum(each.records for each in used) == len(results)
    starts = {each.physical_offset for each in results}
    assert all(each.start_offset in starts for each in used)
    assert all(each.start_offset % (SEGMENT // 4) for each in used if each.start_offset % SEGMENT)
    first, *rest = used
    for each in rest:
        assert each.start_offset in (first.end_offset, SEGMENT * (first.end_offset // SEGMENT + 1))
        first = each


def test_a_part_that_begins_elsewhere_is_not_joined(
    tmp_path: Path, results: list[PutResult]
) -> None:
    source = FileSource(RealFileSystem(), tmp_path / "commitlog", SEGMENT)
    before = section(source, 0, SEGMENT // 2).found
    inside = results[2].physical_offset + 1
    behind = section(source, inside, SEGMENT // 2 - inside, inside=True)
    assert behind.found.start_offset == results[2].end_offset
    assert not behind.follows(before)
    assert section(source, before.end_offset, 9, inside=True).follows(before)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(SEGMENT // 16, marks=pytest.mark.slow),
        SEGMENT // 3,
        pytest.param(SEGMENT, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("disorder", ["none", "torn", "damaged", "set back", "refused"])
def test_the_recovery_is_the_same_with_them(
    disorder: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "PART_BYTES", part)
    results = a_crashed_store(tmp_path)
    if disorder == "torn":
        tear(tmp_path, results[-1])
    elif disorder == "set back":
        for each in results[40:45]:
            alter(tmp_path, each.physical_offset + 56, lambda _: bytes(7) + b"\x01", 8)
    elif disorder != "none":
        flip(tmp_path, results[50])
    alone = recover_small(tmp_path, dry_run=True)
    asked: list[int] = []

    def always(
        directory: Path, starts: list[int], size_bytes: int, *, sealed: bool, reached: int
    ) -> object:
        assert reached == results[-1].end_offset
        asked.extend(starts)
        return helpers.sections(directory, starts, size_bytes, min_bytes=0, sealed=sealed)

    monkeypatch.setattr(examining, "sections", always)
    if disorder == "refused":
        with pytest.raises(BadSegment):
            recover_small(tmp_path, on_damage="refuse")
        return
    together = recover_small(tmp_path)
    assert asked == [0, SEGMENT, 2 * SEGMENT, 3 * SEGMENT]
    assert together.end_offset == alone.end_offset
    assert together.records == alone.records
    assert list(map(str, together.damage)) == list(map(str, alone.damage))
    assert len(together.cut) == len(alone.cut)
