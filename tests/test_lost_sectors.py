"""Every page and sector of a real log, lost in turn: which losses are noticed.

A lost one reads as zeros. With the record checksum every loss inside a record must be noticed; the
share that goes unnoticed without it stands in core/docs/reference/durability.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

import lakelog
from lakelog.errors import CorruptRecord
from lakelog.format.record import checked_frame
from lakelog.format.record_batch import decode_run
from tests.support.fixtures import StoreFixture, StoreFixtures

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
SEALED: Final = ("propcrc",)
UNSEALED: Final = ("basic", "mid", "lmq", "real_broker")


def _records(fixture: StoreFixture) -> Iterator[tuple[int, bytes]]:
    segments = sorted((fixture.store / "commitlog").iterdir())
    with lakelog.open(fixture.store, mode="read", broker_conf=fixture.folder / "options") as store:
        source = {int(path.name): path.read_bytes() for path in segments}
        for message in store.scan():
            offset, size = message.physical_offset, message.size
            start = max(name for name in source if name <= offset)
            yield offset, source[start][offset - start : offset - start + size]


def _losses(
    record: bytes, offset: int, unit_bytes: int, instead: bytes = bytes(PAGE_BYTES)
) -> Iterator[bytes]:
    """The record with each of the units that it stands in replaced, where that changes it."""
    end = offset + len(record)
    for unit in range(offset - offset % unit_bytes, end, unit_bytes):
        first, last = max(unit, offset) - offset, min(unit + unit_bytes, end) - offset
        lost = record[:first] + instead[: last - first] + record[last:]
        if lost != record:
            yield lost


def _is_noticed(lost: bytes, offset: int, *, sealed: bool = False) -> bool:
    """Whether both ways of reading refuse it."""
    try:
        checked_frame(memoryview(lost), 0, len(lost), offset, sealed=sealed)
    except CorruptRecord:
        scalar = True
    else:
        scalar = False
    columns = len(decode_run(lost, offset, sealed=sealed)) == 0
    assert scalar == columns, "both ways of reading must agree"
    return scalar


def _unnoticed(fixture: StoreFixture, unit_bytes: int) -> tuple[int, int]:
    """How many losses go unnoticed, of how many."""
    outcomes = [
        _is_noticed(lost, offset)
        for offset, record in _records(fixture)
        for lost in _losses(record, offset, unit_bytes)
    ]
    assert outcomes
    return outcomes.count(False), len(outcomes)


@pytest.mark.parametrize("unit_bytes", [PAGE_BYTES, SECTOR_BYTES])
@pytest.mark.parametrize("name", [*SEALED, *UNSEALED])
def test_a_lost_page_or_sector_is_noticed(
    store_fixtures: StoreFixtures, name: str, unit_bytes: int
) -> None:
    """Every one with record checksums, nearly every one without."""
    unnoticed, losses = _unnoticed(store_fixtures.get(name), unit_bytes)
    if name in SEALED:
        assert losses > 500
        assert unnoticed == 0
    assert unnoticed <= losses * 0.02


@pytest.mark.parametrize("unit_bytes", [PAGE_BYTES, SECTOR_BYTES])
@pytest.mark.parametrize("name", SEALED)
def test_where_record_checksums_are_required_old_bytes_in_a_lost_place_are_noticed_too(
    store_fixtures: StoreFixtures, name: str, unit_bytes: int
) -> None:
    records = list(_records(store_fixtures.get(name)))
    others = [record.ljust(PAGE_BYTES, b"x")[-PAGE_BYTES:] for _, record in records[1:]]
    for (offset, record), old in zip(records, others, strict=False):
        for lost in _losses(record, offset, unit_bytes, old):
            assert _is_noticed(lost, offset, sealed=True)
