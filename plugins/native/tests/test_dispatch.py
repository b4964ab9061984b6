"""Tags codes, topics and keys: both ways find the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.tests.codec.examples import MESSAGES
from core.tests.codec.support import log_of
from core.tests.consumequeue.support import batch_of
from lakelog.codec import RecordBatch, decode_run
from lakelog.consumequeue.tags import tags_codes
from lakelog.consumequeue.topicgroups import topic_groups
from lakelog.message import Message
from lakelog_hash_index.keys import find_keys
from lakelog_native.accelerator import Native
from plugins.hash_index.tests.support import Rec
from plugins.hash_index.tests.support import batch_of as batch_of_bytes
from plugins.native.tests.support import both

NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"XTAGS", b"TAGSX", b"", b"S"])
VALUES = st.one_of(st.binary(max_size=6), st.text("ab é\U0001f600\x01", max_size=6).map(str.encode))
PIECES = st.builds(lambda name, value: name + b"\x01" + value, NAMES, VALUES)
STRINGS = st.lists(PIECES | st.binary(max_size=3), max_size=5).map(
    lambda pieces: b"\x02".join(pieces).replace(b"\0", b"0")  # a zero at the end was lost
)
RECORDS = st.builds(
    Rec,
    STRINGS,
    st.sampled_from(["t", "orders", "é", "\U0001f600#", "t" * 127]),
    sys_flag=st.sampled_from([0, 0x4, 0x8, 0xC]),
)


def found(batch: RecordBatch) -> tuple[object, ...]:
    keys, (names, numbers) = find_keys(batch), topic_groups(batch)
    columns = (tags_codes(batch), numbers, keys.records, keys.hashes)
    return names, *((column.dtype.str, column.tolist()) for column in columns)


@given(st.lists(RECORDS, max_size=8), st.sampled_from([0, 100]))
def test_any_properties(recs: list[Rec], more: int) -> None:
    """With many records the interpreter lock is given up; the results do not show it."""
    batch = batch_of_bytes([*recs, *[Rec.keyed("a b", topic="other")] * more])
    native, plain = both(lambda: found(batch))
    assert native == plain


@given(st.lists(MESSAGES, max_size=6))
def test_messages(put: list[Message]) -> None:
    log = log_of(put)
    native, plain = both(lambda: found(decode_run(log)))
    assert native == plain


def test_codes_can_be_changed() -> None:
    """Those of delayed messages are."""
    batch = batch_of([("t", "TAGS\x01a", b"")])
    for codes in both(lambda: tags_codes(batch)):
        codes[0] = 5


def test_what_the_accelerator_leaves_alone() -> None:
    native, view = Native(), memoryview(bytes(10))
    inside, outside = np.array([0, 5], np.int64), np.array([0, 11], np.int64)
    length, flags = np.array([1, 1], np.int64), np.zeros(2, np.int32)
    for at, lengths in ((outside, length), (inside, length * 6), (inside, -length)):
        assert native.tags_codes(view, at, lengths) is None
        assert native.topic_numbers(view, at, lengths) is None
        assert native.keys(view, at, lengths, inside, length, flags) is None
        assert native.keys(view, inside, length, at, lengths, flags) is None
    assert native.tags_codes(view, inside, length[:1]) is None
    assert native.keys(view, inside, length, inside, length, flags[:1]) is None
    assert native.keys(view, inside, length, inside, length, flags) is not None
