"""Times as users write them become ms since 1970, or an error that lists the formats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.times import LATEST_MS, parse_time

BERLIN: Final = ZoneInfo("Europe/Berlin")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NOON: Final = datetime(2026, 11, 21, 12, tzinfo=BERLIN)


def _ms(*parts: int) -> int:
    """A time in Berlin."""
    return round(datetime(*parts, tzinfo=BERLIN).timestamp() * 1000)  # type: ignore[misc,arg-type]  # parts are whole numbers, of which datetime wants some


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-5", -5),
        ("@1700000000", 1700000000000),
        ("@1700000000.25", 1700000000250),
        ("now", _ms(2026, 11, 21, 12)),
        (" NOW ", _ms(2026, 11, 21, 12)),
        ("today", _ms(2026, 11, 21)),
        ("yesterday 14:00", _ms(2026, 11, 20, 14)),
        ("tomorrow 9:30", _ms(2026, 11, 22, 9, 30)),
        ("10:15", _ms(2026, 11, 21, 10, 15)),
        ("9:15:30.5", _ms(2026, 11, 21, 9, 15, 30, 500_000)),
        ("2026-11-21 10:15", _ms(2026, 11, 21, 10, 15)),
        ("2026-11-21", _ms(2026, 11, 21)),
        ("2026-07-01 8:00", _ms(2026, 7, 1, 8)),  # summer time, although it is November now
        ("2026-11-21T10:15", _ms(2026, 11, 21, 10, 15)),
        ("2026-11-21T10:15Z", _ms(2026, 11, 21, 11, 15)),
        ("2026-11-21 10:15:30.250+05:30", _ms(2026, 11, 21, 5, 45, 30, 250_000)),
        ("2h", _ms(2026, 11, 21, 10)),
        ("1h30m ago", _ms(2026, 11, 21, 10, 30)),
        ("1 day 2 hours ago", _ms(2026, 11, 20, 10)),
        ("2 weeks", _ms(2026, 11, 7, 12)),
    ],
)
def test_what_is_understood(text: str, expected: int) -> None:
    assert parse_time(text, NOON, BERLIN) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "ago", "soon", "today at 10", "yesterday 25:00", "2026-13-01", "2026-02-30"),
        *("1 fortnight ago", "10m from now", "1h-2m", "@", "24:61", "1.5h", "0x10", "1:1"),
    ],
)
def test_what_is_not(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time; understood are ms since 1970 .*local time"):
        parse_time(text, NOON, BERLIN)


def test_too_far_away() -> None:
    with pytest.raises(ValueError, match="64-bit"):
        parse_time(str(LATEST_MS + 1), NOON)
    assert parse_time(str(LATEST_MS), NOON) == LATEST_MS


@given(st.text() | st.text("0123456789:-+@. TZagodhmwsney"))
def test_any_text_is_a_time_or_a_clear_error(text: str) -> None:
    said = ""
    try:
        assert abs(parse_time(text, NOON, BERLIN)) <= LATEST_MS
    except ValueError as error:
        said = str(error)
    assert said == "" or "times are 64-bit" in said or "understood are" in said


@given(st.timedeltas(timedelta(0), timedelta(days=2_900_000)), st.sampled_from(" T"))
def test_iso_text_comes_back(since_1970: timedelta, separator: str) -> None:
    text = (EPOCH + since_1970).isoformat(separator)
    expected = since_1970 // timedelta(milliseconds=1)
    assert parse_time(text, NOON, BERLIN) == expected
    assert parse_time(text.removesuffix("+00:00"), NOON, UTC) == expected
    assert parse_time(str(expected), NOON) == expected


@given(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "h", "d"]), st.booleans())
def test_lengths_of_time_count_back_from_now(count: int, unit: str, said: bool) -> None:
    names = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    back = timedelta(**{names[unit]: count})
    text = f"{count}{unit} ago" if said else f"{count} {names[unit]}"
    assert parse_time(text, NOON) == (NOON - EPOCH - back) // timedelta(milliseconds=1)


def test_the_systems_zone_is_the_local_one(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    import time

    request.addfinalizer(time.tzset)  # runs after the variable was put back
    with monkeypatch.context() as context:
        context.setenv("TZ", "Europe/Berlin")
        time.tzset()
        assert parse_time("2026-07-01 8:00", NOON) == _ms(2026, 7, 1, 8)
        assert parse_time("yesterday", datetime.now(UTC)) == parse_time(
            "yesterday 0:00", datetime.now(UTC), BERLIN
        )
