"""The properties format; unusual cases were compared with java.util.Properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import SettingsError
from lakelog_rocketmq.java_properties import parse_properties


def _read(text: str) -> dict[str, str]:
    found = parse_properties(text.encode("latin-1"), "broker.conf")
    return {key: one.value for key, one in found.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", {"a": ""}),
        ("a = = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("  \t\fa\t=\fb", {"a": "b"}),
        ("# a=b\n! c=d\n  # e=f", {}),
        ("a=#b", {"a": "#b"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("# a \\\nb=c", {"b": "c"}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=é", {"a": "é"}),
        ("a=b\x85c\x1cd", {"a": "b\x85c\x1cd"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
        ("", {}),
    ],
)
def test_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert _read(text) == expected


def test_a_broken_escape_is_an_error_with_its_line() -> None:
    with pytest.raises(SettingsError, match=r"broker\.conf: line 2: \\u needs"):
        _read("a=b\npath=C:\\users")


def test_the_line_of_a_property_is_that_of_its_start() -> None:
    found = parse_properties(b"# x\n\na=b\\\n  c\nd=e", "x")
    assert {key: one.line for key, one in found.items()} == {"a": 3, "d": 5}


_TEXTS = st.text(st.characters(max_codepoint=0x10FFFF, exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(_TEXTS.filter(bool), _TEXTS, max_size=5), st.sampled_from(["=", ":", " "]))
def test_what_is_stored_is_read(table: dict[str, str], separator: str) -> None:
    text = "\n".join(f"{_escaped(k)}{separator}{_escaped(v)}" for k, v in table.items())
    assert _read(text) == table


@given(st.binary(max_size=60).filter(lambda data: b"\\u" not in data))
def test_any_bytes_without_escapes_of_code_units_are_read(data: bytes) -> None:
    parse_properties(data, "x")


def _escaped(text: str) -> str:
    """As java.util.Properties.store writes it, more or less."""
    return "".join(_escaped_char(char) for char in text)


def _escaped_char(char: str) -> str:
    if char in "=: #!\\":
        return "\\" + char
    if " " < char < "\x7f":
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))
