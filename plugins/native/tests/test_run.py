"""Records read in runs, at given places, and as messages: both ways have the same results."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.format.examples import MESSAGES, damaged_logs, hostile_lengths
from core.tests.format.support import log_of, record_of
from lakelog.arrow.convert import bodies
from lakelog.errors import CorruptRecord
from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.format.record import decode
from lakelog.format.record_batch import _INTS, _LONGS, RecordBatch, decode_run
from lakelog.message import Message, StoredMessage
from lakelog_queues.finding.records import decode_all, sound_records
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


# --- runs ---


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
        assert bodies(native[1][part], False).equals(bodies(plain[1][part], False))
        assert bodies(native[1].take(part), False).equals(bodies(plain[1].take(part), False))


def test_zeros_in_the_text() -> None:
    """Zeros of lost sectors, and zeros that are part of the text."""
    message = Message("orders", b"body", tags="a", properties={"long": "x" * 1200})
    for position, sealed in ((0, False), (100, True), (400, False), (511, True), (2**40 + 7, True)):
        good = record_of(message, record_crc=sealed, position=position)
        border = 512 - position % 512
        for first in (97, 98, 105, 106, 107, border, border + 512, len(good) - 25, len(good) - 1):
            for last in (first + 1, border + 511, border + 512, border + 1024, len(good)):
                lost = good[:first] + bytes(max(last - first, 0)) + good[max(first, last) :]
                count = partial(decode_run, lost[: len(good)], position)
                native, plain = both(lambda count=count: len(count()))  # type: ignore[misc]  # one name for two
                assert native == plain, (position, first, last)


@pytest.mark.parametrize("sealed", [False, True])
def test_every_byte(sealed: bool) -> None:
    good = log_of([Message("tä", b"body", tags="a", keys="b")], record_crc=sealed)
    for at in range(len(good)):
        for flip in (1, 0x20, 0xFF):
            bad = bytearray(good)
            bad[at] ^= flip
            native, plain = both(partial(decode_run, bytes(bad)))
            assert columns(native) == columns(plain), (at, flip)


def test_a_large_run_is_read_without_the_interpreter_lock() -> None:
    """Its length is sufficient; the results do not show whether the lock was released."""
    log = log_of([Message("orders", b"x" * at, tags="tag") for at in range(900)])
    native, plain = both(lambda: columns(decode_run(log)))
    assert len(log) > 64 << 10
    assert native == plain


def test_runs_that_the_accelerator_leaves_alone() -> None:
    view, strided = memoryview(bytes(400)), memoryview(bytes(400))[::2]
    for given_view, base, most in ((strided, 0, 10), (view, 2**63, 1), (view, 0, 2**63)):
        found = NATIVE.read_run(given_view, base, verify=True, sealed=False, max_records=most)
        assert found is None
    place = np.array([0], np.int64)
    for size in (-1, 0, RECORD_MIN_BYTES - 1, 401):
        sizes = np.array([size], np.int32)
        assert not NATIVE.sound_records(view, place, place, sizes, verify=True, pack_bodies=True)


# --- messages ---


def fields(message: StoredMessage) -> list[tuple[type, Any]]:
    names = StoredMessage.__match_args__
    assert len(names) == 17
    return [(type(getattr(message, name)), getattr(message, name)) for name in names]


def outcome(data: bytes, at: int, offset: int | None, verify: bool) -> object:
    try:
        return fields(decode(data, at, offset=offset, verify=verify))
    except CorruptRecord as error:
        return str(error)


@given(LOGS, st.booleans(), st.booleans(), st.integers(-3, 500))
def test_one_message(log: tuple[bytes, int], verify: bool, told: bool, other: int) -> None:
    data, base = log
    starts = decode_run(data, base, verify=False).starts.tolist()
    for at in (*starts, *starts[-1:], other):
        offset = base + at if told else None
        native, plain = both(partial(outcome, data, at, offset, verify))
        assert native == plain


@given(LOGS, st.booleans(), st.data())
def test_several_messages(log: tuple[bytes, int], verify: bool, data: st.DataObject) -> None:
    raw, base = log
    found = decode_run(raw, base, verify=False)
    places = list(zip(found.starts.tolist(), found.sizes.tolist(), strict=True))
    odd = st.tuples(st.integers(-5, len(raw) + 5), st.integers(-5, 500))
    chosen = data.draw(st.lists(st.sampled_from(places) if places else odd, max_size=4))
    chosen += data.draw(st.lists(odd, max_size=1))
    starts = np.array([at for at, _ in chosen], np.int64)
    sizes = np.array([size for _, size in chosen], np.int32)
    view = memoryview(raw)
    native, plain = both(lambda: decode_all(view, starts, sizes, starts + base, verify=verify))
    assert (native is None) == (plain is None)
    if native is not None and plain is not None:
        assert [fields(each) for each in native] == [fields(each) for each in plain]


@given(st.lists(MESSAGES, max_size=6))
def test_a_batch_of_messages(put: list[Message]) -> None:
    log = log_of(put)
    native, plain = both(lambda: decode_run(log).decoded)
    assert [fields(each) for each in native] == [fields(each) for each in plain]
    again = decode_run(log)[1::2]  # columns with gaps
    assert list(again.decoded) == list(plain[1::2])


def test_topics_and_hosts_are_written_alike() -> None:
    """There are more than the cache of objects holds."""
    hosts = ["[::]:0", "[::1.2.3.4]:1", "[::ffff:1.2.3.4]:65535", "[1::8]:9"]
    hosts += [f"10.0.0.{at}:{at}" for at in range(100)]
    put = [
        Message(f"t{at}", b"", born_host=host, store_host="255.0.9.10:65535")
        for at, host in enumerate(hosts)
    ]
    log = log_of(put * 2)
    native, plain = both(lambda: list(decode_run(log).decoded))
    assert [fields(each) for each in native] == [fields(each) for each in plain]


def test_a_large_record_is_checked_without_the_interpreter_lock() -> None:
    record = bytearray(record_of(Message("t", b"x" * 100_000, tags="a"), position=5))
    native, plain = both(lambda: outcome(bytes(record), 0, 5, True))
    assert native == plain
    record[50_000] ^= 1
    native, plain = both(lambda: outcome(bytes(record), 0, 5, True))
    assert native == plain
    assert "its body is damaged" in str(native)


def test_messages_that_the_accelerator_leaves_alone() -> None:
    record = record_of(Message("t", b"body"))
    view, one = memoryview(record), np.array([0], np.int64)
    size = np.array([len(record)], np.int32)
    assert NATIVE.messages(view, one, size, one, verify=True) is not None
    assert NATIVE.messages(view, one, size.astype(np.int64), one, verify=True) is None
    assert NATIVE.messages(view, one, size, one[:0], verify=True) is None
    assert NATIVE.messages(view, one + 1, size, None, verify=False) is None
    assert NATIVE.message(memoryview(bytes(400))[::2], 0, None, verify=False) is None
    for at in (-1, len(record), 2**62, 2**63, 2**70, -(2**70)):
        assert NATIVE.message(view, at, None, verify=False) is None
    for huge in (2**63, 2**70, -(2**70)):
        assert NATIVE.message(view, 0, huge, verify=False) is None
    assert NATIVE.message(view[: RECORD_MIN_BYTES - 1], 0, None, verify=False) is None


def test_values_that_repeat_are_let_go_with_their_messages() -> None:
    message = Message("orders", b"body" * 500, born_timestamp_ms=1_700_000_000_000)
    record, starts = record_of(message), np.arange(3, dtype=np.int64)
    sizes = np.full(3, len(record), np.int32)
    view = memoryview(record * 3)
    found = NATIVE.messages(view, starts * len(record), sizes, None, verify=True)
    assert found is not None
    names = ("topic", "born_host", "body")
    before = [sys.getrefcount(getattr(found[0], name)) for name in names]
    for _ in range(1000):
        NATIVE.message(view, 0, None, verify=True)
    assert [sys.getrefcount(getattr(found[0], name)) for name in names] == before
    values = [found[0].size, found[0].born_timestamp_ms]
    assert all(each.size is values[0] for each in found)
    del found
    alone = [object(), object()]
    assert list(map(sys.getrefcount, values)) == list(map(sys.getrefcount, alone))
