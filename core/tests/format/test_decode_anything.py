"""Decoding raises only the documented errors, and accepts only whole records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.format.examples import BASES, damaged_logs, hostile_lengths
from core.tests.format.support import log_of, record_of, whole_prefix, whole_record
from lakelog.errors import CorruptRecord, IllegalMessage
from lakelog.format.layout import BLANK, MAGIC_BLANK
from lakelog.format.record import SECTOR_BYTES, checked_frame, decode
from lakelog.format.record_batch import RecordBatch, decode_run
from lakelog.message import Message

pytestmark = pytest.mark.both_ways

_COLUMNS = [
    name
    for name in dir(RecordBatch)
    if not name.startswith("_")
    and not callable(getattr(RecordBatch, name))
    and name not in ("decoder", "head")
]


def _scalar_prefix(data: bytes, base: int, *, verify: bool) -> list[int]:
    starts, at = [], 0
    try:
        while at < len(data):
            message = decode(data, at, offset=base + at, verify=verify)
            starts.append(at)
            at += message.size
    except CorruptRecord:
        pass
    return starts


def _check(data: bytes, base: int) -> None:
    """Decode between bytes that would continue the run, so that a read beyond the end fails."""
    around = log_of([Message("other", b"x" * 30)]) * 2
    view = memoryview(around + data + around)[len(around) : len(around) + len(data)]
    for verify in (True, False):
        expected = whole_prefix(data, base, checksums=verify)
        batch = decode_run(view, base, verify=verify)
        assert batch.starts.tolist() == expected
        assert _scalar_prefix(data, base, verify=verify) == expected
        assert all(len(getattr(batch, name)) == len(expected) for name in _COLUMNS if _many(name))
        assert len(batch.hosts()) == len(expected)


def _many(name: str) -> bool:
    return name not in ("buffer", "base_offset", "end_offset", "octets")


@given(st.binary(max_size=400), BASES)
def test_arbitrary_bytes(data: bytes, base: int) -> None:
    _check(data, base)


@given(damaged_logs() | hostile_lengths())
def test_damaged_logs(log: tuple[bytes, int]) -> None:
    _check(*log)


@given(damaged_logs(), st.integers(-5, 500) | st.sampled_from([-93, -92, 10_000]))
def test_decode_at_any_place_of_a_damaged_log(log: tuple[bytes, int], at: int) -> None:
    data, base = log
    try:
        message = decode(data, at, offset=base + at)
    except CorruptRecord:
        assert at < 0 or whole_record(data[at:], base + at) is None
    else:
        assert message.size == whole_record(data[at:], base + at)


@pytest.mark.parametrize("record_crc", [False, True])
def test_every_bit_of_a_record_with_its_checks(record_crc: bool) -> None:
    good = log_of([Message("tä", b"body", tags="a", keys="b")], record_crc=record_crc)
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit >> 3] ^= 1 << (bit & 7)
        assert decode_run(bad).starts.tolist() == whole_prefix(bytes(bad), 0), f"bit {bit}"
        if record_crc and bit >> 3 not in range(len(good) - 20, len(good) - 11):
            assert len(decode_run(bad)) == 0, f"bit {bit} is covered"


def test_parts_that_do_not_fill_a_record() -> None:
    data = bytearray(record_of(Message("t", b"body", properties={"a": "b", "c": "d"})))
    frame = checked_frame(memoryview(data), 0, len(data), 0)
    shorter = frame.properties_length - 4
    data[frame.properties_at - 2 : frame.properties_at] = shorter.to_bytes(2, "big")
    assert decode_run(data).starts.tolist() == []
    with pytest.raises(CorruptRecord, match="do not fill"):
        decode(data)


def test_properties_of_32768_bytes_are_no_record() -> None:
    head = log_of([Message("t", b"")])
    data = bytearray(head[:-2] + (32768).to_bytes(2, "big") + bytes(32768))
    data[:4] = len(data).to_bytes(4, "big")
    assert len(decode_run(data, verify=False)) == 0


def test_a_topic_that_is_no_text_is_damage_in_both_paths() -> None:
    data = bytearray(log_of([Message("ok", b""), Message("topic", b"")]))
    data[-4] = 0xFF
    assert len(decode_run(data, verify=False)) == 1
    with pytest.raises(CorruptRecord, match="UTF-8"):
        decode(data, len(log_of([Message("ok", b"")])))


@pytest.mark.parametrize("lengths", [(1, 1, 1), (128, 128, 128), (512,) * 3, (513,) * 3, (5, 0, 9)])
def test_damaged_bodies_of_one_length_and_of_several(lengths: tuple[int, ...]) -> None:
    """Short bodies of one length are checked together, zeros at their end included."""
    data = bytearray(log_of([Message("t", bytes(length)) for length in lengths]))
    assert len(decode_run(data)) == 3
    last = int(decode_run(data).body_positions[2]) + lengths[2] - 1
    data[last] ^= 1
    assert decode_run(data).starts.tolist() == whole_prefix(bytes(data), 0)
    assert len(decode_run(data)) == 2


def test_a_slice_and_a_limit_keep_what_is_known() -> None:
    data = log_of([Message(f"t{at}", b"x" * at, queue_id=at) for at in range(6)])
    batch = decode_run(data)
    assert len(decode_run(data, max_records=0)) == 0
    first = decode_run(data, max_records=3)
    assert (len(first), first.end_offset) == (3, batch.physical_offsets[3])
    assert batch.topics == ["t0", "t1", "t2", "t3", "t4", "t5"]
    part = batch[2:4]
    assert part.topics == ["t2", "t3"]
    assert part.queue_ids.tolist() == [2, 3]
    assert part.body_lengths.tolist() == [2, 3]
    assert part.flags.tolist() == [0, 0]
    assert part.end_offset == batch.physical_offsets[4]
    assert part.record(0) == batch.record(2)
    assert part.message(1) == batch.message(3)


@pytest.mark.parametrize("flags", [0x10, 0x20, 0x30])
def test_a_short_last_record_that_claims_long_hosts(flags: int) -> None:
    data = bytearray(log_of([Message("t", b""), Message("t", b"")]))
    data[len(data) // 2 + 39] = flags
    assert decode_run(data).starts.tolist() == [0]
    with pytest.raises(CorruptRecord):
        decode(data, len(data) // 2)


# --- blanks ---


def _blank(size: int) -> bytes:
    blank = BLANK.pack(size, MAGIC_BLANK) + bytes(size - 8)
    assert blank[:8].hex() == size.to_bytes(4, "big").hex() + "cbd43194"
    return blank


@pytest.mark.parametrize("size", [8, 91, 400])
def test_it_ends_a_run(size: int) -> None:
    log = log_of([Message("t", b"x")] * 2)
    run = decode_run(log + _blank(size) + log)
    assert (len(run), run.end_offset) == (2, len(log))
    with pytest.raises(CorruptRecord):
        decode(_blank(size))


# --- zeros in topic and properties: a lost sector, or part of the message ---


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
    """Whether the record is whole in a buffer whose sectors are not those of the log."""
    data = memoryview(bytes(77) + record)
    try:
        checked_frame(data, 77, len(data), position)
    except CorruptRecord:
        return False
    return True


@pytest.mark.parametrize("tail", [1, 5, 19, 20, 21, 40])
@pytest.mark.parametrize("record_crc", [False, True])
def test_a_lost_end_of_the_properties(tail: int, record_crc: bool) -> None:
    message = Message("orders", b"body", tags="a", keys=["some", "key"] * 5)
    length = len(record_of(message, record_crc=record_crc))
    position = 4 * SECTOR_BYTES - (length - tail)
    record = record_of(message, record_crc=record_crc, position=position)
    assert _is_whole(record, position)
    assert not _is_whole(_without(record, length - tail, length), position)


@pytest.mark.parametrize("tail", [1, 5, 19, 20, 21, 40])
@pytest.mark.parametrize("record_crc", [False, True])
def test_an_end_of_the_properties_that_was_never_copied(tail: int, record_crc: bool) -> None:
    """A process was killed while it copied the record: the end is no end of a sector."""
    message = Message("orders", b"body", tags="a", keys=["some", "key"] * 5)
    record = record_of(message, record_crc=record_crc, position=SECTOR_BYTES)
    assert len(record) < SECTOR_BYTES
    assert not _is_whole(_without(record, len(record) - tail, len(record)), SECTOR_BYTES)


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
