"""Tags codes are Java's hash of the tags in a dictionary of properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog_queues.units.tags import java_hash, tags_codes
from plugins.queues.tests.consumequeue.support import batch_of

TEXTS = st.one_of(
    st.text("TAGS\x01=ab", max_size=8),
    st.text(max_size=12).filter(lambda text: "\x01" not in text and "\x02" not in text),
    st.text("xyz", min_size=60, max_size=70),
)


def reference_hash(text: str) -> int:
    """As ``String.hashCode`` is defined: the sum of ``s[i] * 31 ** (n - 1 - i)``, as an ``int``."""
    data = text.encode("utf-16-be")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    total: int = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))
    return (total + 2**31) % 2**32 - 2**31


def reference_code(properties: str) -> int:
    """As RocketMQ parses a property string: a piece without a name or value is skipped."""
    code = 0
    for piece in properties.split("\x02"):
        name, _, value = piece.partition("\x01")
        if name == "TAGS" and value:
            code = reference_hash(value)
    return code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
    ],
)
def test_known_hashes(text: str, code: int) -> None:
    assert java_hash(text) == code == reference_hash(text)


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["TAGS", "XTAGS", "TAGS2", "KEYS", "", "é"]), TEXTS),
            max_size=4,
        ),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
)
def test_codes_are_those_of_the_last_tags(
    records: list[list[tuple[str, str]]], ended: bool
) -> None:
    strings = ["\x02".join(f"{name}\x01{value}" for name, value in pairs) for pairs in records]
    strings = [text + "\x02" if ended and text else text for text in strings]
    batch = batch_of([("t", text, b"\x02TAGS\x01no\x02") for text in strings])
    assert tags_codes(batch).tolist() == [reference_code(text) for text in strings]
