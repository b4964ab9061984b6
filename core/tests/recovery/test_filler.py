"""Records made to measure: each is as long as the gap, whole, and says what stood there."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from lakelog.codec import decode, decode_run
from lakelog.codec.record_crc import is_sealed
from lakelog.format.sysflag import ROLLBACK
from lakelog.recovery.filler import (
    FILLER_TOPIC,
    MOST_FILLER_BYTES,
    FillerMaker,
    Filling,
    LogGap,
    least_filler_bytes,
)

NOW_MS = 1_700_000_009_000
OFFSET = 70_000


def gap(size: int, *, sealed: bool = False) -> LogGap:
    return LogGap(OFFSET, OFFSET + size, "its body is damaged", 1_700_000_000_123, sealed)


def made(given: LogGap, next_offset: int = 0) -> list[tuple[int, bytes]]:
    return list(FillerMaker((FILLER_TOPIC, 0), next_offset, NOW_MS).make(given))


@pytest.mark.parametrize("sealed", [False, True])
def test_a_filler_of_every_size_is_whole_and_exactly_as_long(sealed: bool) -> None:
    least = least_filler_bytes(sealed=sealed)
    assert least == (112 if sealed else 92)
    for size in range(least, least + 400):
        ((offset, record),) = made(gap(size, sealed=sealed))
        assert (offset, len(record)) == (OFFSET, size)
        message = decode(record, offset=OFFSET)
        assert message.size == size
        assert message.store_timestamp_ms == 1_700_000_000_123
        assert is_sealed(message.properties_bytes) is sealed
        batch = decode_run(record, OFFSET)
        assert (len(batch), batch.end_offset) == (1, OFFSET + size)


def test_what_has_no_room_for_the_whole_topic_is_in_no_queue() -> None:
    for size in range(92, 92 + len(FILLER_TOPIC) - 1):
        ((_, record),) = made(gap(size))
        message = decode(record, offset=OFFSET)
        assert message.topic == FILLER_TOPIC[: size - 91]
        assert message.topic != FILLER_TOPIC
        assert message.sys_flag & ROLLBACK == ROLLBACK
        assert message.queue_offset == 0
    ((_, record),) = made(gap(91 + len(FILLER_TOPIC)), next_offset=7)
    message = decode(record, offset=OFFSET)
    assert (message.topic, message.queue_offset, message.sys_flag) == (FILLER_TOPIC, 7, 0)


def test_its_body_says_what_was_there_as_far_as_there_is_room() -> None:
    ((_, long),) = made(gap(400))
    assert json.loads(decode(long, offset=OFFSET).body) == {
        "lakelog": "repaired",
        "offset": OFFSET,
        "size_bytes": 400,
        "time_ms": NOW_MS,
        "reason": "its body is damaged",
    }
    ((_, short),) = made(gap(160))
    assert json.loads(decode(short, offset=OFFSET).body) == {"offset": OFFSET, "size_bytes": 160}
    ((_, shorter),) = made(gap(120))
    assert json.loads(decode(shorter, offset=OFFSET).body) == {}


@pytest.mark.parametrize("sealed", [False, True])
def test_a_gap_longer_than_a_record_can_be_gets_several(sealed: bool) -> None:
    size = 3 * MOST_FILLER_BYTES + 1
    records = made(gap(size, sealed=sealed), next_offset=3)
    assert [decode(each).queue_offset for _, each in records] == [3, 4, 5, 6]
    batch = decode_run(b"".join(each for _, each in records), OFFSET)
    assert (len(batch), batch.end_offset) == (4, OFFSET + size)
    assert max(len(each) for _, each in records) <= MOST_FILLER_BYTES


def test_what_no_record_fits_into_is_known_before() -> None:
    for size, sealed, possible in (
        *((91, False, False), (92, False, True)),
        *((111, True, False), (112, True, True)),
    ):
        filling = Filling(Path("segment"), 0, gap(size, sealed=sealed), to_the_end=False)
        assert filling.is_possible == possible


def test_one_gap_behind_the_other_goes_on_in_the_queue() -> None:
    maker = FillerMaker((FILLER_TOPIC, 2), 5, NOW_MS)
    first, behind = gap(200), attrs.evolve(gap(200), offset=80_000, end_offset=80_200)
    messages = [decode(record) for each in (first, behind) for _, record in maker.make(each)]
    assert [(each.queue_id, each.queue_offset) for each in messages] == [(2, 5), (2, 6)]
    assert [each.physical_offset for each in messages] == [OFFSET, 80_000]


def test_the_first_one_of_long_damage_is_short() -> None:
    """Each message that was lost there may lead to it."""
    sizes = [len(record) for _, record in made(gap(70_000))]
    assert sizes == [1024, 70_000 - 1024]
    assert [len(record) for _, record in made(gap(60_000))] == [60_000]
