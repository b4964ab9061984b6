"""The sound part of a segment: both ways find the same in its file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.format.examples import BASES, MESSAGES, damaged_logs, hostile_lengths
from core.tests.format.support import log_of, record_of
from lakelog.format.layout import AT_QUEUE_OFFSET, BLANK, MAGIC_BLANK
from lakelog.format.queue_survey import QueueOffsetSurvey
from lakelog.message import Message
from lakelog.recovery.proof import read_segment
from plugins.native.tests.support import NATIVE, both

STORE_TIME_AT = 56  # behind a host of IPv4
SIZE = 1 << 20
PLAIN = [Message("t", bytes(at), keys=f"k{at}", queue_id=at % 3) for at in range(50)]


@st.composite
def other_fields(draw: st.DrawFn) -> tuple[bytes, int]:
    """A log in which queue offsets and store times, which no checksum covers, were changed."""
    base = draw(BASES)
    log, starts = bytearray(), list[int]()
    for each in draw(st.lists(st.sampled_from(PLAIN) | MESSAGES, min_size=1, max_size=8)):
        starts.append(len(log))
        log += record_of(each, position=base + len(log))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.sampled_from(starts)) + draw(st.sampled_from([AT_QUEUE_OFFSET, STORE_TIME_AT]))
        value = draw(st.integers(-1, 6) | st.sampled_from([2**62, 2**63 - 1, -(2**63)]))
        log[at : at + 8] = value.to_bytes(8, "big", signed=True)
    return bytes(log), base


LOGS = st.one_of(
    damaged_logs(),
    hostile_lengths(),
    other_fields(),
    st.builds(
        lambda put, base, sealed: (log_of(put, base=base, record_crc=sealed), base),
        *(st.lists(st.sampled_from(PLAIN) | MESSAGES, max_size=9), BASES, st.booleans()),
    ),
)


def told(found: QueueOffsetSurvey) -> dict[str, Any]:
    """The parts to compare: a chain keeps its first record only while it has no other."""
    chains = {
        queue: (each.next, each.end, each.alone, each.alone and each.start, each.doubt_next)
        for queue, each in found.chains.items()
    }
    times = found.first_timestamp_ms, found.last_timestamp_ms, found.highest_timestamp_ms
    return {
        "ends": (found.start_offset, found.end_offset, found.records),
        "times": times,
        "queues": found.next_offsets,
        "chains": chains,
    }


def read(log: bytes, base: int, *, sealed: bool = False, size: int = SIZE) -> tuple[Any, Any]:
    """The results of both ways for a segment with these bytes."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(log)
        file.flush()
        native, plain = both(lambda: read_segment(Path(file.name), base, size, sealed=sealed))
    return told(native), told(plain)


@given(LOGS, st.booleans(), st.booleans())
def test_any_bytes(log: tuple[bytes, int], sealed: bool, is_blank: bool) -> None:
    data, base = log
    if is_blank:
        data += BLANK.pack(SIZE - len(data), MAGIC_BLANK)
    native, plain = read(data, base, sealed=sealed)
    assert native == plain


@pytest.mark.parametrize(
    "odd",
    [
        Message("t", b"", queue_id=0, sys_flag=0x80),
        Message("t", b"", queue_id=0, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}),
        Message("t", b"", queue_id=0, properties={"x": "INNER_MULTI_DISPATCH"}),
        Message("t", b"", queue_id=0, sys_flag=0x4),
        Message("half", b"", queue_id=0, sys_flag=0x4),
        Message("t", bytes(SIZE // 2), queue_id=0),
    ],
    ids=["batch", "light queues", "name in a value", "prepared", "prepared-alone", "long"],
)
def test_one_that_is_not_plain(odd: Message) -> None:
    log = log_of([*PLAIN, odd, *PLAIN])
    native, plain = read(log, 0)
    assert native == plain
    assert native["ends"] == (0, len(log), 2 * len(PLAIN) + 1)


def test_it_reads_plain_records_itself(tmp_path: Path) -> None:
    """More than one window of records, up to the end of the segment, whatever follows."""
    log = log_of(PLAIN * 700)
    path = tmp_path / "segment"
    path.write_bytes(log + log[:100])
    with path.open("rb") as file:
        found = NATIVE.plain_records(file.fileno(), 0, len(log), sealed=False)
        assert found is not None
        assert found[:2] == (len(log), 700 * len(PLAIN))
        assert [(topic, at, count) for topic, at, count, *_ in found[-1]] == [
            ("t", 0, 700 * 17),
            ("t", 1, 700 * 17),
            ("t", 2, 700 * 16),
        ]
        assert NATIVE.plain_records(file.fileno(), 0, 90, sealed=False) is None
        assert NATIVE.plain_records(file.fileno(), 0, len(log), sealed=True) is None
        assert NATIVE.plain_records(file.fileno(), 2**62, 2**62, sealed=False) is None
        assert NATIVE.plain_records(-1, 0, len(log), sealed=False) is None
    with path.open("wb") as unreadable:
        assert NATIVE.plain_records(unreadable.fileno(), 0, len(log), sealed=False) is None
