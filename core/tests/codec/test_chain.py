"""Where records start, found in leaps, is where one step after the other leads."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.codec.chain import follow
from lakelog.layout import RECORD_MIN_BYTES

SIZES = st.integers(RECORD_MIN_BYTES, RECORD_MIN_BYTES + 3)
RUNS = st.lists(st.tuples(SIZES, st.integers(1, 100)), max_size=6)


def chain(sizes: list[int]) -> bytes:
    return b"".join(struct.pack(">i", size).ljust(size, b"\x01") for size in sizes)


def step_by_step(data: bytes, most: int) -> list[int]:
    starts: list[int] = []
    at = 0
    while len(starts) < most and at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size < RECORD_MIN_BYTES or at + size > len(data):
            break
        starts.append(at)
        at += size
    return starts


@given(RUNS, st.integers(0, 300), st.integers(1, 400), st.sampled_from([0, 1, 90, -5, 2**31 - 1]))
def test_leaps_find_what_steps_find(
    runs: list[tuple[int, int]], cut: int, most: int, last: int
) -> None:
    data = chain([size for size, count in runs for _ in range(count)]) + struct.pack(">i", last)
    data = data[: len(data) - cut] if cut < len(data) else data
    assert follow(memoryview(data), most).tolist() == step_by_step(data, most)


@pytest.mark.parametrize("at", [0, 31, 32, 33, 1055, 1056, 1057, 2999])
@pytest.mark.parametrize("size", [0, -1, RECORD_MIN_BYTES, RECORD_MIN_BYTES + 11, 1 << 30])
def test_one_length_that_differs_is_seen(at: int, size: int) -> None:
    data = bytearray(chain([RECORD_MIN_BYTES + 10] * 3_000))
    struct.pack_into(">i", data, at * (RECORD_MIN_BYTES + 10), size)
    assert follow(memoryview(data), 1 << 16).tolist() == step_by_step(bytes(data), 1 << 16)


def test_nothing_is_there() -> None:
    assert follow(memoryview(b""), 10).tolist() == []
