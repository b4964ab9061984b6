"""Pins of another log hold all segments; a log line says so once."""

from __future__ import annotations

import zlib
from pathlib import Path

import attrs
import pytest

from core.tests.store.support import SEGMENT
from lakelog import PutResult, Store
from lakelog.codec import RecordBatch
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.checksum import Fingerprint
from lakelog_retention.maintenance.pin_check import PinValidator
from lakelog_retention.pins import Pin, write_pin
from plugins.retention.tests.maintenance.support import MaintenancePlugin, fill

FILES = RealFileSystem()


def fingerprint(store: Store, put: PutResult) -> Fingerprint:
    (piece,) = store.scan_pieces(put.physical_offset, put.end_offset)
    assert isinstance(piece, RecordBatch)
    record = piece.record(0)
    return Fingerprint(put.physical_offset, len(record), zlib.crc32(record))


def pinned(store: Store, put: PutResult, now_ms: int) -> Pin:
    """The pin of a follower that has read all messages up to that put."""
    return Pin("lake", put.end_offset, now_ms, fingerprint=fingerprint(store, put))


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
        put = fill(store, 160)
        pin = pinned(store, put[140], plugin.clock.now_ms())
        assert pin.fingerprint is not None
        other = attrs.evolve(pin.fingerprint, crc=pin.fingerprint.crc ^ 1)
        write_pin(FILES, tmp_path, attrs.evolve(pin, fingerprint=other))
        assert store.delete_expired().deleted == ()
        write_pin(FILES, tmp_path, pin)
        assert store.delete_expired().deleted


def test_it_expires_as_any_other(tmp_path: Path) -> None:
    plugin = MaintenancePlugin()
    with plugin.filled(tmp_path, maintenance={"pin_expires_after_ms": 1000}) as store:
        write_pin(FILES, tmp_path, Pin("lake", 1 << 40, plugin.clock.now_ms()))
        assert store.delete_expired().deleted == ()
        plugin.clock.advance(1001)
        assert store.delete_expired().deleted


def test_what_was_deleted_tells_nothing_any_more(tmp_path: Path) -> None:
    plugin = MaintenancePlugin()
    with plugin.open(tmp_path) as store:
        put = fill(store, 160)
        late = [each for each in put if each.end_offset <= SEGMENT][-1]
        pin = pinned(store, late, plugin.clock.now_ms())
        write_pin(FILES, tmp_path, attrs.evolve(pin, position=SEGMENT))
        assert store.delete_expired().deleted
        assert store.min_offset == SEGMENT > late.physical_offset
        last = attrs.evolve(fingerprint_of(pin), crc=0)
        judge = PinValidator(store.scan_pieces)
        behind = attrs.evolve(pin, position=SEGMENT, fingerprint=last)
        assert judge.judged(behind, store.min_offset, store.max_offset) == behind


def fingerprint_of(pin: Pin) -> Fingerprint:
    assert pin.fingerprint is not None
    return pin.fingerprint


@pytest.mark.parametrize(("offset", "size"), [(1, 0), (-1, 0), (0, 1), (0, -1), (SEGMENT, 0)])
def test_a_record_must_be_there_whole(tmp_path: Path, offset: int, size: int) -> None:
    with MaintenancePlugin().open(tmp_path) as store:
        put = fill(store, 30)
        pin = pinned(store, put[20], 0)
        judge = PinValidator(store.scan_pieces)
        assert judge.judged(pin, 0, store.max_offset) is pin
        last = fingerprint_of(pin)
        wrong = Fingerprint(last.offset + offset, last.size + size, last.crc)
        judged = judge.judged(attrs.evolve(pin, fingerprint=wrong), 0, store.max_offset)
        assert judged.position == 0
        assert judged.problem is not None
        assert f"its position is {pin.position}" in judged.problem


def test_a_log_that_cannot_be_read_proves_nothing(tmp_path: Path) -> None:
    def broken(_start: int, _end: int) -> list[RecordBatch]:
        raise OSError(5, "Input/output error")

    pin = Pin("lake", 500, 0, fingerprint=Fingerprint(400, 100, 0))
    assert PinValidator(broken).judged(pin, 0, 1000).problem is not None
