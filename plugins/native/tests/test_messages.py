"""Messages from records: both ways give equal objects, of the same types, or the same error."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.codec import decode, decode_run
from lakelog.errors import CorruptRecord
from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.message import Message, StoredMessage
from lakelog_native.accelerator import Native
from lakelog_queues.finding.records import decode_all
from plugins.format.tests.codec.examples import MESSAGES, damaged_logs, hostile_lengths
from plugins.format.tests.codec.support import log_of, record_of
from plugins.native.tests.support import both

LOGS = st.one_of(
    damaged_logs(),
    hostile_lengths(),
    st.builds(
        lambda put, base, sealed: (log_of(put, base=base, record_crc=sealed), base),
        *(st.lists(MESSAGES, max_size=4), st.sampled_from([0, 100, 2**40]), st.booleans()),
    ),
)


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
def test_one(log: tuple[bytes, int], verify: bool, told: bool, other: int) -> None:
    data, base = log
    starts = decode_run(data, base, verify=False).starts.tolist()
    for at in (*starts, *starts[-1:], other):
        offset = base + at if told else None
        native, plain = both(partial(outcome, data, at, offset, verify))
        assert native == plain


@given(LOGS, st.booleans(), st.data())
def test_several(log: tuple[bytes, int], verify: bool, data: st.DataObject) -> None:
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
def test_a_batch(put: list[Message]) -> None:
    log = log_of(put)
    native, plain = both(lambda: decode_run(log).decoded)
    assert [fields(each) for each in native] == [fields(each) for each in plain]
    again = decode_run(log)[1::2]  # columns with gaps
    assert list(again.decoded) == list(plain[1::2])


@pytest.mark.parametrize("host", ["[::]:0", "[::1.2.3.4]:1", "[::ffff:1.2.3.4]:65535", "[1::8]:9"])
def test_hosts_are_written_alike(host: str) -> None:
    record = record_of(Message("t", b"", born_host=host, store_host="255.0.9.10:65535"))
    native, plain = both(lambda: fields(decode(record)))
    assert native == plain


def test_many_topics_and_hosts() -> None:
    """There are more than the cache of objects holds."""
    put = [Message(f"t{at}", b"", born_host=f"10.0.0.{at}:{at}") for at in range(100)] * 2
    log = log_of(put)
    native, plain = both(lambda: list(decode_run(log).decoded))
    assert native == plain


def test_a_large_record_is_checked_without_the_interpreter_lock() -> None:
    record = bytearray(record_of(Message("t", b"x" * 100_000, tags="a"), position=5))
    native, plain = both(lambda: outcome(bytes(record), 0, 5, True))
    assert native == plain
    record[50_000] ^= 1
    native, plain = both(lambda: outcome(bytes(record), 0, 5, True))
    assert native == plain
    assert "its body is damaged" in str(native)


def test_what_the_accelerator_leaves_alone() -> None:
    native, record = Native(), record_of(Message("t", b"body"))
    view, one = memoryview(record), np.array([0], np.int64)
    size = np.array([len(record)], np.int32)
    assert native.messages(view, one, size, one, verify=True) is not None
    assert native.messages(view, one, size.astype(np.int64), one, verify=True) is None
    assert native.messages(view, one, size, one[:0], verify=True) is None
    assert native.messages(view, one + 1, size, None, verify=False) is None
    assert native.message(memoryview(bytes(400))[::2], 0, None, verify=False) is None
    for at in (-1, len(record), 2**62):
        assert native.message(view, at, None, verify=False) is None
    for huge in (2**63, 2**70, -(2**70)):
        assert native.message(view, huge, None, verify=False) is None
        assert native.message(view, 0, huge, verify=False) is None
    assert native.message(view[: RECORD_MIN_BYTES - 1], 0, None, verify=False) is None


def test_no_object_is_kept_or_let_go_once_too_often() -> None:
    native, record = Native(), memoryview(record_of(Message("orders", b"body" * 50, tags="a")))
    first = native.message(record, 0, None, verify=True)
    assert first is not None
    before = [sys.getrefcount(getattr(first, name)) for name in ("topic", "born_host", "body")]
    for _ in range(1000):
        native.message(record, 0, None, verify=True)
    after = [sys.getrefcount(getattr(first, name)) for name in ("topic", "born_host", "body")]
    assert before == after


def test_values_that_repeat_are_let_go_with_their_messages() -> None:
    message = Message("orders", b"body" * 500, born_timestamp_ms=1_700_000_000_000)
    record, starts = record_of(message), np.arange(3, dtype=np.int64)
    sizes = np.full(3, len(record), np.int32)
    view = memoryview(record * 3)
    found = Native().messages(view, starts * len(record), sizes, None, verify=True)
    assert found is not None
    values = [found[0].size, found[0].born_timestamp_ms]
    assert all(each.size is values[0] for each in found)
    del found
    alone = [object(), object()]
    assert list(map(sys.getrefcount, values)) == list(map(sys.getrefcount, alone))
