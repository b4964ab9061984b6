"""Zeros in topic and properties: a lost sector, or text that somebody put there."""

from __future__ import annotations

import numpy as np
import pytest

from core.tests.codec.support import log_of, record_of
from lakelog.codec import RecordBatch, decode, decode_run
from lakelog.codec.frame import SECTOR_BYTES
from lakelog.errors import CorruptRecord, IllegalMessage
from lakelog.message import Message
from lakelog_queues.finding.gather import sound_records


def _without(record: bytes, first: int, last: int) -> bytes:
    return record[:first] + bytes(last - first) + record[last:]


def _is_whole(record: bytes, position: int) -> bool:
    try:
        decode(record, offset=position)
    except CorruptRecord:
        whole = False
    else:
        whole = True
    assert (len(decode_run(record, position)) == 1) == whole
    assert _is_whole_elsewhere(record, position) == whole
    return whole


def _is_whole_elsewhere(record: bytes, position: int) -> bool:
    """As it is gathered: in a buffer whose sectors are not those of the log."""
    batch = RecordBatch(memoryview(bytes(77) + record), 0, np.array([77], np.int64))
    where, size = np.array([position], np.int64), np.array([len(record)], np.int32)
    good, some = sound_records(batch, where, size)
    assert some.starts.tolist() == ([77] if good[0] else [])
    return bool(good[0])


@pytest.mark.parametrize("tail", [1, 5, 19, 20, 21, 40])
@pytest.mark.parametrize("record_crc", [False, True])
def test_a_lost_end_of_the_properties(tail: int, record_crc: bool) -> None:
    message = Message("orders", b"body", tags="a", keys=["some", "key"] * 5)
    length = len(record_of(message, record_crc=record_crc))
    position = 4 * SECTOR_BYTES - (length - tail)
    record = record_of(message, record_crc=record_crc, position=position)
    assert _is_whole(record, position)
    assert not _is_whole(_without(record, length - tail, length), position)


def test_a_lost_sector_inside_of_long_properties() -> None:
    message = Message("orders", b"body", properties={"long": "x" * 2000})
    record = record_of(message, position=100)
    first = 2 * SECTOR_BYTES - 100
    assert not _is_whole(_without(record, first, first + SECTOR_BYTES), 100)
    assert _is_whole(_without(record, first, first + SECTOR_BYTES - 1), 100)


@pytest.mark.parametrize("position", range(0, SECTOR_BYTES, 7))
def test_zeros_that_are_meant(position: int) -> None:
    several = {"a\x00": "\x00", "zeros": "\x00" * (SECTOR_BYTES - 1), "b": "\x00\x00"}
    for properties in (None, {}, several):
        record = record_of(Message("orders", bytes(300), properties=properties), position=position)
        assert _is_whole(record, position)


def test_a_batch_ends_before_the_record_that_lost_some() -> None:
    log = log_of([Message("orders", b"x" * at, tags="tag") for at in range(50)])
    run = decode_run(log)
    assert len(run) == 50
    borders = run.ends - run.ends % SECTOR_BYTES
    at = int(((run.property_positions <= borders) & (borders < run.ends)).argmax())
    lost = _without(log, int(borders[at]), int(run.ends[at]))
    assert len(decode_run(lost)) == at
    assert at > 0
    assert len(decode_run(lost, verify=False)) > at


@pytest.mark.parametrize("properties", [b"a\x01b\x00", {"a": "\x00" * SECTOR_BYTES}])
def test_text_that_would_pass_for_a_lost_sector_is_refused(
    properties: bytes | dict[str, str],
) -> None:
    with pytest.raises(IllegalMessage, match="lost sector"):
        record_of(Message("orders", b"", properties=properties))
