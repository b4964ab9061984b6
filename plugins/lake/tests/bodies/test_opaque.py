"""Bodies without a schema."""

from __future__ import annotations

from lakelog_lake.bodies import parser_for
from plugins.lake.tests.bodies.parsing import parse, rows_of


def test_binary() -> None:
    assert rows_of(parser_for("binary"), b"\xff", b"") == [{"body": b"\xff"}, {"body": b""}]


def test_string() -> None:
    bodies = [b"", "é😀".encode(), b"ab\xff", b"x" * 1000, b"\xc3"]
    for large in (False, True):
        found = parse(parser_for("string"), *bodies, large=large)
        assert found.columns["body"].to_pylist() == ["", "é😀", "x" * 1000]
        assert found.errors == (
            "byte 2: not UTF-8 (invalid start byte)",
            "byte 0: not UTF-8 (unexpected end of data)",
        )


def test_all_of_them_bad() -> None:
    assert not parse(parser_for("string"), b"\xff", b"\xfe").good.any()
