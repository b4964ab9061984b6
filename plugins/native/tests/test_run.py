"""Runs of records, and records at given places: both ways have the same results."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.codec import RecordBatch, decode_run
from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.message import Message
from lakelog_format.codec.record_batch import _INTS, _LONGS
from lakelog_queues.arrow.bodies import bodies
from lakelog_queues.finding.gather import sound_records
from plugins.format.tests.codec.examples import MESSAGES, damaged_logs, hostile_lengths
from plugins.format.tests.codec.support import log_of, record_of
from plugins.native.tests.support import NATIVE, both

LOGS = st.one_of(
    damaged_logs(),
    hostile_lengths(),
    st.builds(
        lambda put, base, sealed: (log_of(put, base=base, record_crc=sealed), base),
        *(st.lists(MESSAGES, max_size=4), st.sampled_from([0, 100, 2**40]), st.booleans()),
    ),
)


def columns(batch: RecordBatch) -> dict[str, Any]:
    """All fixed columns, and their types."""
    names = (*_LONGS, *_INTS, "ends", "magics", "body_crcs")
    found = {name: getattr(batch, name) for name in names}
    return {name: (column.dtype.str, column.tolist()) for name, column in found.items()}


def _read(data: bytes) -> dict[str, Any]:
    return columns(decode_run(data))


def _count(data: bytes, base: int) -> int:
    return len(decode_run(data, base))


@given(LOGS, st.booleans(), st.booleans(), st.integers(-1, 5))
def test_runs(log: tuple[bytes, int], verify: bool, sealed: bool, most: int) -> None:
    data, base = log
    around = log_of([Message("other", b"x" * 30)])
    view = memoryview(around + data + around)[len(around) : len(around) + len(data)]
    native, plain = both(
        lambda: decode_run(view, base, verify=verify, sealed=sealed, max_records=most)
    )
    assert columns(native) == columns(plain)
    assert native.topics == plain.topics
    assert native.hosts() == plain.hosts()
    assert native.end_offset == plain.end_offset
    assert [native.message(at) for at in range(len(native))] == list(plain.decoded)


@given(LOGS, st.booleans(), st.data())
def test_pointed_records(log: tuple[bytes, int], verify: bool, data: st.DataObject) -> None:
    raw, base = log
    if len(raw) < RECORD_MIN_BYTES:
        return
    found = decode_run(raw, base, verify=False)
    good = list(zip(found.starts.tolist(), found.sizes.tolist(), strict=True))
    anywhere = st.integers(0, len(raw) - RECORD_MIN_BYTES).flatmap(
        lambda at: st.tuples(st.just(at), st.integers(RECORD_MIN_BYTES, len(raw) - at))
    )
    places = data.draw(st.lists(st.sampled_from(good) | anywhere if good else anywhere))
    off = data.draw(st.sampled_from([0, 0, 0, 1, -(2**62)]))
    starts = np.array([at for at, _ in places], np.int64)
    sizes = np.array([size for _, size in places], np.int32)
    batch = RecordBatch(memoryview(raw), 0, starts)
    pack = data.draw(st.booleans())
    native, plain = both(
        lambda: sound_records(batch, starts + base + off, sizes, verify=verify, pack_bodies=pack)
    )
    assert native[0].tolist() == plain[0].tolist()
    assert columns(native[1]) == columns(plain[1])
    assert (native[1].packed_bodies is not None) == pack
    assert plain[1].packed_bodies is None
    for part in (slice(None), slice(1, None), slice(None, None, -1)):
        for one, other in (
            (native[1][part], plain[1][part]),
            (native[1].take(part), plain[1].take(part)),
        ):
            assert bodies(one, False).equals(bodies(other, False))
    assert bodies(native[1], False).equals(bodies(plain[1], False))


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("position", [0, 100, 400, 511, 2**40 + 7])
def test_zeros_in_the_text(position: int, sealed: bool) -> None:
    """Zeros of lost sectors, and zeros that are part of the text."""
    message = Message("orders", b"body", tags="a", properties={"long": "x" * 1200})
    good = record_of(message, record_crc=sealed, position=position)
    border = 512 - position % 512
    for first in (97, 98, 105, 106, 107, border, border + 512, len(good) - 25, len(good) - 1):
        for last in (first + 1, border + 511, border + 512, border + 1024, len(good)):
            lost = good[:first] + bytes(max(last - first, 0)) + good[max(first, last) :]
            native, plain = both(partial(_count, lost[: len(good)], position))
            assert native == plain, (first, last)


@pytest.mark.parametrize("sealed", [False, True])
def test_every_byte(sealed: bool) -> None:
    good = log_of([Message("tä", b"body", tags="a", keys="b")], record_crc=sealed)
    for at in range(len(good)):
        for flip in (1, 0x10, 0x20, 0x80, 0xFF):
            bad = bytearray(good)
            bad[at] ^= flip
            native, plain = both(partial(_read, bytes(bad)))
            assert native == plain, (at, flip)


def test_a_large_run_is_read_without_the_interpreter_lock() -> None:
    """Its length is sufficient; the results do not show whether the lock was released."""
    log = log_of([Message("orders", b"x" * at, tags="tag") for at in range(900)])
    native, plain = both(lambda: columns(decode_run(log)))
    assert len(log) > 64 << 10
    assert native == plain


def test_what_the_accelerator_leaves_alone() -> None:
    strided = memoryview(bytes(400))[::2]
    assert NATIVE.read_run(strided, 0, verify=True, sealed=False, max_records=10) is None
    for base, most in ((2**63, 1), (0, 2**63)):
        view = memoryview(bytes(400))
        assert NATIVE.read_run(view, base, verify=True, sealed=False, max_records=most) is None
    place = np.array([0], np.int64)
    for size in (-1, 0, RECORD_MIN_BYTES - 1, 401):
        sizes = np.array([size], np.int32)
        found = NATIVE.sound_records(
            memoryview(bytes(400)), place, place, sizes, verify=True, pack_bodies=True
        )
        assert found is None


def test_another_process_can_have_it() -> None:
    other, log = pickle.loads(pickle.dumps(NATIVE)), memoryview(log_of([Message("t", b"x")]))
    run = {"verify": True, "sealed": False, "max_records": 10}
    assert other.read_run(log, 0, **run) == NATIVE.read_run(
        log, 0, verify=True, sealed=False, max_records=10
    )
    assert other.message(log, 0, None, verify=True).body == b"x"
