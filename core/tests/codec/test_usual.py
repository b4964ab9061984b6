"""The quick way to a message says what the long way says, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.arrow.test_columns import MESSAGES
from core.tests.codec.examples import damaged_logs
from core.tests.codec.support import log_of, record_of
from lakelog.codec import decode
from lakelog.codec.usual import decode_usual
from lakelog.errors import CorruptRecord
from lakelog.layout import RECORD_MIN_BYTES
from lakelog.message import Message, StoredMessage

PLAIN = Message("t", b"body", tags="a", keys="k", queue_id=0)


def decoded(record: bytes, offset: int, *, verify: bool) -> StoredMessage | None:
    try:
        message = decode(record, offset=offset, verify=verify)
    except CorruptRecord:
        return None
    return message if message.size == len(record) else None


@given(put=st.lists(MESSAGES, min_size=1, max_size=4), verify=st.booleans())
def test_whole_records(put: list[Message], verify: bool) -> None:
    log = log_of(put)
    at = 0
    while at < len(log):
        record = log[at : at + decode(log, at).size]
        found = decode_usual(record, at, verify=verify)
        assert found in (None, decoded(record, at, verify=verify))
        at += len(record)


@given(damaged=damaged_logs(), cut=st.integers(RECORD_MIN_BYTES, 400), verify=st.booleans())
def test_damage_is_never_served(damaged: tuple[bytes, int], cut: int, verify: bool) -> None:
    log, base = damaged
    if len(log) < RECORD_MIN_BYTES:
        return
    for record in (log[:cut], log[: int.from_bytes(log[:4], "big")]):
        if len(record) >= RECORD_MIN_BYTES:
            found = decode_usual(record, base, verify=verify)
            assert found is None or found == decoded(record, base, verify=verify)


def test_every_flipped_byte_is_seen_or_stands_outside_of_the_checks() -> None:
    record = record_of(PLAIN)
    assert decode_usual(record, 0) == decode(record)
    for at in range(len(record)):
        spoiled = bytearray(record)
        spoiled[at] ^= 0x55
        found = decode_usual(bytes(spoiled), 0)
        assert found is None or found == decoded(bytes(spoiled), 0, verify=True)


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"b", born_host="[::1]:5"),
        Message("t", b"b", store_host="[::1]:5"),
        Message("t" * 200, b"b"),
    ],
)
def test_what_is_not_usual_is_left_alone(message: Message) -> None:
    assert decode_usual(record_of(message), 0) is None
    assert decode_usual(record_of(PLAIN, record_crc=True), 0) is None
    assert decode_usual(record_of(PLAIN), 1) is None
