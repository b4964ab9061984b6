"""Threads that read the sound part of a long log, a segment each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.tests.recovery.support import a_crashed_store, flip, recover_small, store_at, tear
from core.tests.store.support import SEGMENT, overwrite
from lakelog import accelerate
from lakelog.errors import BadSegment
from lakelog.format.layout import RECORD_CRC_BYTES, segment_name
from lakelog.format.queue_survey import QueueOffsetSurvey
from lakelog.recovery import proof
from lakelog.recovery.proof import read_segment

STARTS = range(0, 4 * SEGMENT, SEGMENT)


@pytest.fixture(autouse=True)
def several_processors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    before = accelerate.current()
    accelerate.use(Leaving())  # type: ignore[arg-type]  # it has a part of the methods
    yield
    accelerate.use(before)


class Leaving:
    """An accelerator that leaves everything to Python."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def test_it_ends_before_a_record_without_the_checksum_that_is_required(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path, record_crc=True)
    overwrite(tmp_path, results[50].end_offset - RECORD_CRC_BYTES, b"9" * 19 + b"\x02")
    segment = tmp_path / "commitlog" / segment_name(SEGMENT)
    assert read_segment(segment, SEGMENT, SEGMENT, sealed=False).end_offset == 2 * SEGMENT
    end = read_segment(segment, SEGMENT, SEGMENT, sealed=True).end_offset
    assert end == results[49].end_offset


@pytest.mark.parametrize("disorder", ["none", "torn", "damaged", "set back", "refused"])
def test_the_recovery_is_the_same_with_them(
    disorder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = a_crashed_store(tmp_path)
    if disorder == "torn":
        tear(tmp_path, results[-1])
    elif disorder == "set back":
        for each in results[40:45]:
            store_at(tmp_path, each, 1)
    elif disorder != "none":
        flip(tmp_path, results[50])
    read: list[int] = []

    def counted(path: Path, start: int, size_bytes: int, *, sealed: bool) -> QueueOffsetSurvey:
        read.append(start)
        return read_segment(path, start, size_bytes, sealed=sealed)

    monkeypatch.setattr(proof, "read_segment", counted)
    if disorder == "refused":
        with pytest.raises(BadSegment):
            recover_small(tmp_path, on_damage="refuse")
        assert read
        return
    accelerate.use(None)
    alone = recover_small(tmp_path, dry_run=True)
    assert not read
    accelerate.use(Leaving())  # type: ignore[arg-type]  # it has a part of the methods
    together = recover_small(tmp_path)
    assert {0, SEGMENT} <= set(read) <= set(STARTS)  # what follows damage may be cancelled
    assert together.end_offset == alone.end_offset
    assert together.records == alone.records
    assert list(map(str, together.damage)) == list(map(str, alone.damage))
    assert len(together.cut) == len(alone.cut)
