"""Records that lost a sector, gathered into a buffer whose sectors are not those of the log."""

from __future__ import annotations

import numpy as np
import pytest

from core.tests.format.support import record_of
from lakelog import Message
from lakelog.format.record import SECTOR_BYTES
from lakelog.format.record_batch import RecordBatch
from lakelog_queues.finding.records import sound_records

pytestmark = pytest.mark.both_ways


def _is_sound(record: bytes, position: int) -> bool:
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
    assert _is_sound(record, position)
    assert not _is_sound(record[: length - tail] + bytes(tail), position)
