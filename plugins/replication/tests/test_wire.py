from __future__ import annotations

import pytest

from lakelog_replication.wire import (
    MAX_BODY_BYTES,
    FrameStream,
    HaFrame,
    WireError,
    frame_header,
    report,
    whole_reports,
)

BODIES = [b"first", b"", b"x" * 40, b""]


def sent() -> bytes:
    """Four frames that follow one another from offset 1000, two of them heartbeats."""
    offset, data = 1000, b""
    for body in BODIES:
        data += frame_header(offset, len(body)) + body
        offset += len(body)
    return data


def give(stream: FrameStream, data: bytes) -> list[tuple[int, bytes]]:
    """Frames of ``data`` with copies of their bodies."""
    stream.room()[: len(data)] = data
    return [(each.offset, bytes(each.body)) for each in stream.received(len(data))]


EXPECTED = [(1000, BODIES[0]), (1005, BODIES[1]), (1005, BODIES[2]), (1045, BODIES[3])]


def test_the_layout_is_that_of_rocketmq() -> None:
    assert frame_header(0x0102, 3).hex() == "0000000000000102" + "00000003"
    assert report(-2).hex() == "fffffffffffffffe"
    assert HaFrame(1000, memoryview(b"abc")).end_offset == 1003


def test_frames_may_be_torn_anywhere() -> None:
    data = sent()
    for cut in range(len(data) + 1):
        stream = FrameStream()
        assert give(stream, data[:cut]) + give(stream, data[cut:]) == EXPECTED, cut


def test_frames_may_come_byte_by_byte() -> None:
    stream = FrameStream()
    assert [frame for byte in sent() for frame in give(stream, bytes([byte]))] == EXPECTED


def test_the_largest_frame_fits_wherever_the_one_before_it_ended() -> None:
    stream, body = FrameStream(), bytes(MAX_BODY_BYTES)
    data = frame_header(0, 5) + b"small" + frame_header(5, len(body)) + body
    frames = []
    while data:
        count = min(len(stream.room()), len(data))
        frames += give(stream, data[:count])
        data = data[count:]
    assert [(offset, len(body)) for offset, body in frames] == [(0, 5), (5, MAX_BODY_BYTES)]


@pytest.mark.parametrize(
    ("offset", "size"), [(0, -1), (0, MAX_BODY_BYTES + 1), (0, -(1 << 31)), (-1, 0), (-1, 10)]
)
def test_a_header_that_is_not_allowed_is_an_error_before_its_body_comes(
    offset: int, size: int
) -> None:
    with pytest.raises(WireError, match=rf"offset {offset} with {size} bytes"):
        give(FrameStream(), frame_header(offset, size))


def test_the_room_never_grows_by_what_a_header_says() -> None:
    stream = FrameStream()
    room = len(stream.room())
    give(stream, frame_header(0, MAX_BODY_BYTES))
    assert len(stream.room()) == room - 12


def test_reports_may_be_torn_anywhere() -> None:
    data = report(0) + report(-1) + report(1 << 62)
    for cut in range(25):
        offsets, rest = whole_reports(data[:cut])
        assert (*offsets, *whole_reports(rest + data[cut:])[0]) == (0, -1, 1 << 62), cut
