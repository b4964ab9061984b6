"""Hashes and keys of many records at once equal the results of a plain loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.format.layout import COMMIT, PREPARED, ROLLBACK
from lakelog_hash_index.keys import find_keys, hash_key, hash_text
from plugins.hash_index.tests.support import Rec, batch_of

TEXTS = st.one_of(st.text(max_size=40), st.text("ab\x00\x7f", max_size=300))


def java_hash(text: str) -> int:
    """``String.hashCode`` as its documentation defines it, unit by unit."""
    data = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value


def java_key_hash(topic: str, key: str) -> int:
    value = java_hash(f"{topic}#{key}")
    return 0 if value == 1 << 31 else min(value, (1 << 32) - value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("hello", 99162322), ("\U0001f600", 1772899), ("polygenelubricants", 1 << 31)],
)
def test_hashes_that_java_computed(text: str, expected: int) -> None:
    assert hash_text(text) == java_hash(text) == expected


def test_the_number_without_an_absolute_value_counts_as_0() -> None:
    assert java_hash("t#key88800\u23c19") == 1 << 31
    assert hash_key("t", "key88800\u23c19") == 0
    keys = find_keys(batch_of([Rec("KEYS\x01key88800\u23c19".encode(), "t")]))
    assert keys.hashes.tolist() == [0]


@given(TEXTS, TEXTS)
def test_the_hash_of_one_key(topic: str, key: str) -> None:
    assert hash_text(key) == java_hash(key)
    assert hash_key(topic, key) == java_key_hash(topic, key)


def keys_of(rec: Rec) -> list[str]:
    """As RocketMQ reads a property string and takes keys from it."""
    found: dict[str, str] = {}
    for piece in rec.properties.decode(errors="replace").split("\x02"):
        name, _, value = piece.partition("\x01")
        if name and value:
            found[name] = value
    if rec.sys_flag & ROLLBACK == ROLLBACK:
        return []
    keys = [found["UNIQ_KEY"]] if "UNIQ_KEY" in found else []
    return keys + [each for each in found.get("KEYS", "").split(" ") if each]


NAMES = st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "XKEYS", "KEYSX", "UNIQ_KEYS", "", "S", "Y"])
VALUES = st.text("ab \u00e9\U0001f600\x01", max_size=8)
PIECES = st.builds(lambda name, mark, value: name + mark + value, NAMES, st.just("\x01"), VALUES)
BROKEN = st.sampled_from(
    [b"", b"\x02", b"\x02\x02", b"KEYS", b"\x01", b"\xff\xc3", b"KEYS\x01\xe2 a"]
)
PROPERTIES = st.builds(
    lambda pieces, tail: "\x02".join(pieces).encode() + tail, st.lists(PIECES, max_size=5), BROKEN
)
RECORDS = st.builds(
    Rec,
    PROPERTIES,
    st.sampled_from(["t", "orders", "\u00e9", "\U0001f600#"]),
    sys_flag=st.sampled_from([0, PREPARED, COMMIT, ROLLBACK]),
)


@given(st.lists(RECORDS, max_size=12))
def test_keys_of_many_records_are_those_of_each(recs: list[Rec]) -> None:
    expected = [
        (at, java_key_hash(rec.topic, key)) for at, rec in enumerate(recs) for key in keys_of(rec)
    ]
    for batch in (batch_of(recs), batch_of([*recs, *[Rec()] * 100])):
        keys = find_keys(batch)
        assert list(zip(keys.records.tolist(), keys.hashes.tolist(), strict=True)) == expected
