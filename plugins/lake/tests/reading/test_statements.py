"""Where statements end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog_lake.commands.statements import statements

Cases = tuple[tuple[list[str], list[str]], ...]
BOTH: Cases = (
    (["select 1"], ["select 1"]),
    (["select 1; select 2;"], ["select 1", "select 2"]),
    (["select 1\n", "from t;\n", "select 2\n"], ["select 1\nfrom t", "select 2"]),
    (["select ';', \"a;b\"; select 2"], ["select ';', \"a;b\"", "select 2"]),
    (["select 'it'';s'; select 2"], ["select 'it'';s'", "select 2"]),
    (["select 'one;\n", "two'; select 2\n"], ["select 'one;\ntwo'", "select 2"]),
    (["select 1 -- no; end\n", "; select 2"], ["select 1 -- no; end", "select 2"]),
    (["select 1 /* no;\n", "end; */; select 2"], ["select 1 /* no;\nend; */", "select 2"]),
    (["select 'never ends; select 2"], ["select 'never ends; select 2"]),
    ([";; -- nothing\n", " /* ; */ ;"], []),
)
OF_SPARK: Cases = (
    (["select `c;d`; select 2"], ["select `c;d`", "select 2"]),
    (["select 'it\\';s'; select 2"], ["select 'it\\';s'", "select 2"]),
)
OF_DUCKDB: Cases = (
    (["select '\\'; select 2"], ["select '\\'", "select 2"]),
    (["select $$a;b$$, $t$;\n", "$$;$t$; select 2"], ["select $$a;b$$, $t$;\n$$;$t$", "select 2"]),
    (["select $1; select 2"], ["select $1", "select 2"]),
)


@pytest.mark.parametrize(
    ("dialect", "texts", "expected"),
    [
        *(("spark", *each) for each in (*BOTH, *OF_SPARK)),
        *(("duckdb", *each) for each in (*BOTH, *OF_DUCKDB)),
    ],
)
def test_statements_end_with_semicolons(
    dialect: str, texts: list[str], expected: list[str]
) -> None:
    assert list(statements(texts, dialect)) == expected


def test_a_statement_is_there_as_soon_as_it_ends() -> None:
    def lines() -> Iterator[str]:
        yield "select 1;\n"
        raise AssertionError("it waits for more")

    assert next(statements(lines())) == "select 1"
