"""Pins of another log hold all segments; a log line says so once."""

from __future__ import annotations

import zlib
from pathlib import Path

import attrs
import pytest

from core.tests.maintenance.support import MaintenancePlugin, fill
from core.tests.store.support import SEGMENT
from lakelog import PutResult, Store
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.checksum import Fingerprint
from lakelog.format.record_batch import RecordBatch
from lakelog.maintenance.pins import Pin, PinValidator, write_pin

FILES = RealFileSystem()


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
