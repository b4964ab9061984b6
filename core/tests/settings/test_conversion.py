"""Sizes, durations and other values: exact or refused, by an error that names key and source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import SettingsError
from lakelog.settings.conversion import (
    DURATION_MS,
    SIZE_BYTES,
    UNIT_MS,
    Parser,
    build,
    parse_duration,
    parse_duration_ms,
    parse_percent,
    parse_ratio,
    parse_size_bytes,
    parser_for,
    pattern_for,
)
from lakelog.settings.effective import Given


def test_sizes_and_durations() -> None:
    sizes = {"1024": 1024, "10 KB": 10_000, "64mib": 64 << 20, " 2TB ": 2 * 10**12}
    assert {text: parse_size_bytes(text) for text in sizes} == sizes
    durations = {500: 500, "500": 500, "0.5s": 500, "1min": 60_000, "2 d": 172_800_000}
    assert {text: parse_duration_ms(text) for text in durations} == durations


@pytest.mark.parametrize(
    "value",
    ["64M", "1G", "", "yes", "1 2", "-1", -1, 1.5, 1024.0, True, None, "1.3B", "1s", "1e3", "٣"],
)
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_size_bytes(value)
    assert repr(value) in str(caught.value)
    assert "64MiB" in str(caught.value), "an error says what is accepted"


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


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Inner:
    size: int = 1


@attrs.frozen(kw_only=True)
class Many:
    whole: int = 1
    share: float = 0.5
    name: str = "x"
    on: bool = False
    place: Path = Path()
    maybe: int | None = 3
    maybe_ms: int | None = 3
    colour: Colour = Colour.RED
    mode: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    numbers: list[int] = attrs.field(factory=list)
    table: dict[str, str] = attrs.field(factory=dict)
    either: int | str = 0
    inner: Inner = attrs.field(factory=Inner)
    anything: Any = None
    _hidden: int = 1


def _built(values: Mapping[str, object], *, text: bool = False) -> Many:
    givens = {key: Given("many", key, value, "somewhere", text) for key, value in values.items()}
    built = build("many", Many, givens)
    assert isinstance(built, Many)
    return built


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("whole", 5, 5), ("share", 1, 1.0), ("share", 0.25, 0.25), ("on", True, True),
        ("place", "/x", Path("/x")), ("place", Path("y"), Path("y")), ("maybe", None, None),
        ("maybe", "", None), ("maybe", 7, 7), ("maybe_ms", "1s", 1000), ("maybe_ms", "", None),
        ("colour", "blue", Colour.BLUE), ("colour", Colour.BLUE, Colour.BLUE), ("mode", "b", "b"),
        ("names", ["a", "b"], ("a", "b")), ("names", ("a",), ("a",)), ("numbers", [1, 2], [1, 2]),
        ("numbers", (1, 2), [1, 2]), ("table", {"a": "b"}, {"a": "b"}), ("either", "s", "s"),
        ("either", 4, 4), ("inner", {"size": 9}, Inner(9)), ("anything", object, object),
    ],
)  # fmt: skip  # a table of values
def test_what_fits(key: str, value: object, expected: object) -> None:
    built = getattr(_built({key: value}), key)
    assert built == expected
    assert type(built) is type(expected)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("whole", "yes", "expected a whole number, got 'yes' (str)"),
        ("whole", "5", "expected a whole number"), ("whole", True, "expected a whole number"),
        ("whole", 5.0, "expected a whole number"), ("whole", None, "expected a whole number"),
        ("share", "0.5", "expected a number"), ("share", False, "expected a number"),
        ("name", 5, "expected a string"), ("on", "true", "expected true or false"),
        ("on", 1, "expected true or false"), ("place", 5, "expected a path"),
        ("maybe", "x", "expected a whole number"),
        ("maybe_ms", "x", "'x' is not a whole number of milliseconds"), ("maybe_ms", 0.5, "500ms"),
        ("colour", "green", "green"), ("mode", "c", "expected one of a, b, got 'c' (str)"),
        ("mode", 1, "expected one of a, b, got 1 (int)"),
        ("names", "abc", "expected a list, got 'abc' (str)"),
        ("names", {"a": 1}, "expected a list"), ("names", [1], "expected a string"),
        ("numbers", ["1"], "expected a whole number"), ("table", {"a": 1}, "expected a string"),
        ("either", 0.5, "got 0.5 (float)"), ("inner", {"siz": 9}, "siz"),
    ],
)  # fmt: skip  # a table of values
def test_what_does_not_fit(key: str, value: object, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        _built({key: value})
    assert words in str(caught.value)
    assert (caught.value.key, caught.value.source) == (f"many.{key}", "somewhere")


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("whole", "5", 5), ("share", "0.5", 0.5), ("on", "TRUE", True), ("on", "false", False),
        ("maybe", "", None), ("maybe", "6", 6), ("names", "a, b,", ("a", "b")), ("names", "", ()),
        ("name", "5", "5"), ("place", "/x", Path("/x")), ("colour", "blue", Colour.BLUE),
    ],
)  # fmt: skip  # a table of values
def test_sources_without_types_are_read_by_the_field(key: str, text: str, expected: object) -> None:
    assert getattr(_built({key: text}, text=True), key) == expected


def test_but_are_as_strict() -> None:
    for key, text in (("on", "yes"), ("on", "1"), ("whole", "1.5"), ("share", "")):
        with pytest.raises(SettingsError, match="expected"):
            _built({key: text}, text=True)


@attrs.frozen(kw_only=True)
class Crossed:
    low: int = 0
    high: int = attrs.field(default=1)

    @high.validator
    def _above(self, _: object, value: int) -> None:
        if value < self.low:
            raise ValueError("high is below low")


def test_a_validator_across_fields_names_the_sources() -> None:
    givens = {"high": Given("crossed", "high", -1, "here")}
    with pytest.raises(SettingsError, match="here: high is below low"):
        build("crossed", Crossed, givens)


def test_types_that_exist_only_for_checkers_are_explained() -> None:
    hidden = attrs.make_class("Hidden", {"field": attrs.field(default=1)})
    hidden.__annotations__ = {"field": "Nowhere"}
    with pytest.raises(SettingsError, match="Nowhere"):
        build("hidden", hidden, {"field": Given("hidden", "field", 1, "here")})
