"""JSON as fastjson writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog_rocketmq.config.lenient import parse_object, quote_keys

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.integers().map(str), inner, max_size=3)
    ),
    max_leaves=12,
)


def as_fastjson(value: Any, space: str) -> str:
    """Write a value as JSON, but integer keys bare."""
    if isinstance(value, dict):
        pairs = (
            f"{space}{_key(key)}{space}:{as_fastjson(each, space)}" for key, each in value.items()
        )
        return "{" + ",".join(pairs) + space + "}"
    if isinstance(value, list):
        return "[" + ",".join(as_fastjson(each, space) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    is_integer = key.removeprefix("-").isascii() and key.removeprefix("-").isdigit()
    return key if is_integer else json.dumps(key, ensure_ascii=False)


@given(
    st.dictionaries(st.text() | st.integers().map(str), VALUES),
    st.sampled_from(["", " ", "\n\t", "\r\n"]),
)
def test_any_object_with_bare_integer_keys_is_read_as_with_quoted_ones(
    value: dict[str, Any], space: str
) -> None:
    assert parse_object(as_fastjson(value, space).encode(errors="surrogatepass")) == value


@given(VALUES)
def test_strict_json_stays_as_it_is(value: object) -> None:
    text = json.dumps(value)
    assert quote_keys(text) == text


@pytest.mark.parametrize(
    "inside", ["{0:1}", ',1:{"', "\\", '\\"', 'a\\\\":2,', "\n", "//", "0:", "é{3:"]
)
def test_the_inside_of_strings_is_left_alone(inside: str) -> None:
    text = json.dumps({"a": inside, inside: [inside]}, ensure_ascii=False)
    assert parse_object(text.replace("{", "{7:{},", 1).encode()) == {
        "7": {},
        "a": inside,
        inside: [inside],
    }


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b" ", b"[1]", b"null", b"7", b"{0:1", b'{"a":"', b"{0 1:2}", b"{0:1}}"),
        *(b"\xff\xfe{}", b"\x00" * 64, b"[" * 100_000, b'{"a":' * 100_000, b"{,0:1}"),
        b"{0:1}{0:2}",
    ],
)
def test_everything_else_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # json has errors of its own
        parse_object(content)


def test_of_a_key_that_repeats_the_last_value_counts() -> None:
    assert parse_object(b'{"0":1,0:2}') == {"0": 2}
