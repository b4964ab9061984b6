"""JSON bodies as columns."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog_lake.bodies import json as jsonbodies
from lakelog_lake.bodies.json import Json
from plugins.lake.tests.bodies.parsing import error_of, parse, rows_of

DDL = "id bigint, name string, at timestamp, due date, ok boolean, x double, n int, l array<bigint>"
PARSER = Json.of(f"{DDL}, user struct<name: string, ages: array<struct<a: int not null>>>", "x")
ID = Json.of("id bigint", "x")


def test_a_body_is_a_row() -> None:
    body = {
        "id": 1,
        "name": "é\n\u0000😀",
        "at": "2026-01-02T03:04:05.678Z",
        "due": "2026-01-02",
        "ok": True,
        "x": 2,
        "n": -5,
        "l": [1, None],
        "more": {"id": "x"},
        "user": {"name": None, "ages": [{"a": 1, "b": 2}, None]},
    }
    (row,) = rows_of(PARSER, json.dumps(body, indent=2).encode())
    assert row == {
        "id": 1,
        "name": "é\n\u0000😀",
        "due": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
        "ok": True,
        "x": 2.0,
        "n": -5,
        "l": [1, None],
        "user": {"name": None, "ages": [{"a": 1}, None]},
    }


def test_what_is_missing_is_null() -> None:
    bodies = (b"{}", b' \r\n{"user" :\n{"ages":[]}}\n', b'{"user":{"ages":null}}')
    first, second, third = rows_of(PARSER, *bodies)
    assert set(first.values()) == {None}
    assert second["user"] == {"name": None, "ages": []}
    assert third["user"] == {"name": None, "ages": None}


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.123456+00:00"),
        ("2026-01-02t03:04:05.1z", "2026-01-02T03:04:05.100000+00:00"),
        ("2026-01-02T03:04:05.1234567+02:00", "2026-01-02T01:04:05.123456+00:00"),
        ("2026-01-02 03:04:05", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05.1234567", "2026-01-02T03:04:05.123456+00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
        ("2026-01-02", "2026-01-02T00:00:00+00:00"),
    ],
)
def test_times(text: str, time: str) -> None:
    """Alone, and beside one that makes the slow way necessary."""
    body = json.dumps({"at": text}).encode()
    rows = rows_of(PARSER, body, b'{"at":"2026-01-02T03:04:05.123456789"}', b'{"at":null}')
    assert rows[0]["at"].isoformat() == time
    assert rows_of(PARSER, body)[0]["at"].isoformat() == time
    assert rows[2]["at"] is None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"id": "1"}', '/id: "1" is not an integer'),
        ('{"id": 1.0}', "/id: 1.0 is not an integer"),
        ('{"id": true}', "/id: true is not an integer"),
        ('{"id": 9223372036854775808}', "/id: 9223372036854775808 does not fit 64 bits"),
        ('{"n": 2147483648}', "/n: 2147483648 does not fit 32 bits"),
        ('{"name": 1}', "/name: 1 is not a string"),
        ('{"x": "1"}', '/x: "1" is not a number'),
        ('{"ok": 0}', "/ok: 0 is not a boolean"),
        ('{"l": [1, {}]}', "/l/1: an object is not an integer"),
        ('{"user": []}', "/user: an array is not an object"),
        (
            '{"user": {"ages": [{"a": 1}, {}]}}',
            "/user/ages/1/a is required, and is null or missing",
        ),
        ('{"at": "soon"}', '/at: "soon" is not a string with a time (ISO 8601)'),
        (
            '{"at": "2026-02-30T00:00:00Z"}',
            '/at: "2026-02-30T00:00:00Z" is not a string with a time',
        ),
        ('{"due": "2026-1-2"}', '/due: "2026-1-2" is not a string with a date (YYYY-MM-DD)'),
        ('{"id": 1, "id": 2}', "/id occurs more than once"),
        ('{"id": 1', "should end with }, not '1'"),
        ('{"é": x}', "byte 7: Expecting value"),
        ('{"id": NaN}', "NaN is not JSON"),
        ('{"more": [-Infinity ]}', "-Infinity is not JSON"),
        ('{"name": "\\ud800"}', "half of a surrogate pair"),
        ('{"name": "a\nb"}', "byte 11: Invalid control character"),
        ('{"id": 1}{"id": 2}', "byte 9: Extra data"),
        ('{"id": 1} null {}', "byte 10: Extra data"),
        ("null", "byte 0: a JSON object should begin here"),
        ("[{}]", "byte 0: a JSON object should begin here"),
        ("\ufeff{}", "byte 0: a JSON object should begin here"),
        (" \n", "byte 0: an empty body"),
        ("", "byte 0: an empty body"),
        (f'{{"id": {"1" * 5000}}}', "couldn't parse"),
    ],
)
def test_a_bad_body_is_told_and_its_neighbours_are_good(body: str, why: str) -> None:
    assert why in error_of(PARSER, body.encode())
    found = parse(PARSER, b'{"id": 1}', body.encode(), b'{"id": 3}')
    assert found.good.tolist() == [True, False, True]
    assert why in found.errors[0]
    assert found.columns["id"].to_pylist() == [1, 3]


def test_what_looks_bad_and_is_good() -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    bodies = (b'{"name":"NaN}"}', b'{"name":"}{"}', b'{"more":%b}' % deep, b'{"\\u0069d":7}')
    assert [row["id"] for row in rows_of(PARSER, *bodies)] == [None, None, None, 7]


def test_not_utf8() -> None:
    assert error_of(PARSER, b'{"more":"\xff"}').startswith("byte 9: not UTF-8")


def test_two_halves_are_no_whole() -> None:
    """What is laid behind each other to be read fast is still judged apart."""
    found = parse(ID, b'{"a":[{}', b'{"a":[{}', b'{"id":1}]}', b'{"a":"}', b'{"}', b'{"id":2}')
    assert found.good.tolist() == [False] * 5 + [True]


def test_many_bad_bodies_in_every_place() -> None:
    bad = (b'{"id":"x"}', b'{"id":1e2}', b"null", b'{"id":1,"id":2}', b'{"id":1}{}', b"\xff")
    pick = np.random.default_rng(5).integers(0, 40, 3000)
    bodies = [bad[at] if at < len(bad) else b'{"id":%d}' % n for n, at in enumerate(pick)]
    found = parse(ID, *bodies, large=True)
    assert (found.good == (pick >= len(bad))).all()
    assert found.columns["id"].to_pylist() == np.flatnonzero(found.good).tolist()
    alone = [error_of(ID, body) for body in bad]
    assert list(found.errors) == [alone[at] for at in pick if at < len(bad)]


def test_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonbodies, "_STEP_BYTES", 10)
    assert [row["id"] for row in rows_of(ID, *[b'{"id":%d}' % n for n in range(5)])] == [*range(5)]


values = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "ok": st.none() | st.booleans(),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "n": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "l": st.none() | st.lists(st.none() | st.integers(-5, 5)),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "due": st.none() | st.dates(),
    },
)


def _json(body: dict[str, Any], indent: int | None) -> bytes:
    return json.dumps(body, default=lambda time: time.isoformat(), indent=indent).encode()


@given(st.lists(values, min_size=1, max_size=5), st.sampled_from([None, 1]))
def test_what_was_written_is_read(bodies: list[dict[str, Any]], indent: int | None) -> None:
    rows = rows_of(PARSER, *[_json(body, indent) for body in bodies])
    assert rows == [dict.fromkeys(PARSER.fields.names) | body for body in bodies]


@settings(max_examples=50)
@given(st.lists(values, min_size=1, max_size=6), st.data())
def test_a_body_is_judged_alone(bodies: list[dict[str, Any]], data: st.DataObject) -> None:
    """Whatever bytes are in the bodies, each has the fate that it has without the others."""
    damaged = [_damaged(_json(body, None), data) for body in bodies]
    together = parse(PARSER, *damaged)
    alone = [parse(PARSER, body) for body in damaged]
    assert together.good.tolist() == [bool(each.good[0]) for each in alone]
    assert together.columns.to_pylist() == [
        row for each in alone for row in each.columns.to_pylist()
    ]


def _damaged(body: bytes, data: st.DataObject) -> bytes:
    at = data.draw(st.integers(0, len(body)))
    size = data.draw(st.integers(0, 2))
    new = data.draw(st.sampled_from([b"", b"{", b"}", b'"', b"NaN", b"null", b"\n", b",", b"\xff"]))
    return body[:at] + new + body[at + size :]


NUMBERS = Json.of("i int, f float, d double, l array<float>, s struct<f: float>", "x")


@pytest.mark.parametrize(
    "body",
    [
        '{"f":1e39}',
        '{"f":-3.5e38}',
        '{"d":1.7976931348623159e308}',
        f'{{"d":{"9" * 400}}}',
        f'{{"d":{"9" * 5000}}}',
        '{"d":1e400}',
        '{"l":[1,1e39]}',
        '{"s":{"f":1e39}}',
    ],
)
def test_a_number_beyond_its_column_is_told_and_never_infinite(body: str) -> None:
    good = b'{"f":3.4e38,"d":-1.7976931348623157e308,"l":[1.5,null],"s":{"f":null}}'
    found = parse(NUMBERS, good, body.encode(), good)
    assert found.good.tolist() == [True, False, True]
    for row in found.columns.to_pylist():
        assert row["d"] == -1.7976931348623157e308
        assert row["l"] == [1.5, None]


def test_a_number_of_no_column_is_no_hindrance() -> None:
    found = rows_of(NUMBERS, b'{"i":1,"other":1e400,"s":{"f":2,"g":[1e999]}}', b'{"i":2}')
    assert [row["i"] for row in found] == [1, 2]
    assert found[0]["s"] == {"f": 2.0}
