"""Sizes and durations: exact or refused."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import SettingsError
from lakelog.settings.units import (
    DURATION_MS,
    SIZE_BYTES,
    UNIT_MS,
    Parser,
    parse_duration,
    parse_duration_ms,
    parse_percent,
    parse_ratio,
    parse_size_bytes,
    parser_for,
    pattern_for,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0), ("1024", 1024), ("10 KB", 10_000), ("64mib", 64 << 20), (" 2TB ", 2 * 10**12),
        ("1TiB", 1 << 40),
    ],
)  # fmt: skip  # a table of sizes
def test_sizes(value: object, expected: int) -> None:
    assert parse_size_bytes(value) == expected


@pytest.mark.parametrize(
    "value",
    ["64M", "1G", "", "yes", "1 2", "-1", -1, 1.5, 1024.0, True, None, "1.3B", "1s", "1e3", "٣"],
)
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_size_bytes(value)
    assert repr(value) in str(caught.value)
    assert "64MiB" in str(caught.value), "an error says what is accepted"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (500, 500), ("500", 500), ("0.5s", 500), ("1m", 60_000), ("1min", 60_000),
        ("2 d", 172_800_000),
    ],
)  # fmt: skip  # a table of durations
def test_durations(value: object, expected: int) -> None:
    assert parse_duration_ms(value) == expected


@pytest.mark.parametrize("value", ["1M", "1w", "s", -1, True, 0.5, "0.5ms", "1kB", "1 s s"])
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(SettingsError, match="500ms"):
        parse_duration_ms(value)


def test_a_duration_for_a_field_in_other_units_must_come_out_even() -> None:
    assert parse_duration("3d", "_hours") == 72
    assert parse_duration("90m", "_seconds") == 5_400
    assert parse_duration(72, "_hours") == 72
    assert parse_duration("72", "_hours") == 72
    with pytest.raises(SettingsError, match=r"whole number of hours.*not a whole number"):
        parse_duration("90m", "_hours")


def test_shares() -> None:
    assert parse_ratio("75%") == parse_ratio(0.75) == parse_ratio("0.75") == 0.75
    assert parse_percent("75%") == parse_percent(75) == parse_percent("75") == 75
    assert parse_ratio(1) == 1
    for wrong in ("101%", 1.5, -0.1, "x", True, float("nan")):
        with pytest.raises(SettingsError):
            parse_ratio(wrong)


def test_the_end_of_a_name_tells_the_unit() -> None:
    for key, value, number in [
        ("segment_size_bytes", "1KiB", 1024),
        ("flush_interval_ms", "1s", 1000),
        ("file_reserved_hours", "3d", 72),
        ("wait_seconds", "1m", 60),
        ("max_used_ratio", "75%", 0.75),
    ]:
        parse = parser_for(key)
        assert parse is not None
        assert parse(value) == number
    assert parser_for("queues_per_topic") is None
    assert pattern_for("queues_per_topic") is None


@given(st.fractions(0, 10**9, max_denominator=10**6), st.sampled_from(sorted(SIZE_BYTES)))
def test_a_size_is_what_its_unit_says_or_is_refused(number: Fraction, unit: str) -> None:
    digits = _decimal(number)
    exact = Fraction(digits) * SIZE_BYTES[unit]
    if exact.denominator == 1:
        assert parse_size_bytes(digits + unit) == exact
    else:
        with pytest.raises(SettingsError, match="the result is not a whole number"):
            parse_size_bytes(digits + unit)


@given(
    st.integers(0, 10**12), st.sampled_from(sorted(DURATION_MS)), st.sampled_from(sorted(UNIT_MS))
)
def test_a_duration_is_converted_exactly_or_refused(count: int, unit: str, suffix: str) -> None:
    exact = Fraction(count * DURATION_MS[unit], UNIT_MS[suffix])
    if exact.denominator == 1:
        assert parse_duration(f"{count}{unit}", suffix) == exact
    else:
        with pytest.raises(SettingsError):
            parse_duration(f"{count}{unit}", suffix)


@given(st.from_regex(r"[ 0-9.a-zA-Z%]{0,8}", fullmatch=True))
def test_the_patterns_of_the_schema_accept_what_the_parsers_accept(text: str) -> None:
    for key in ("x_bytes", "x_ms"):
        parse, pattern = parser_for(key), pattern_for(key)
        assert parse is not None
        assert pattern is not None
        refusal = _refusal(parse, text)
        assert ("the result is not a whole number" in refusal or not refusal) == bool(
            re.search(pattern, text)
        )


def _refusal(parse: Parser, text: str) -> str:
    try:
        parse(text)
    except SettingsError as error:
        return str(error)
    return ""


def _decimal(number: Fraction) -> str:
    """A number cut to six decimals."""
    whole, rest = divmod(number * 10**6 // 1, 10**6)
    return f"{whole}.{rest:06d}"
