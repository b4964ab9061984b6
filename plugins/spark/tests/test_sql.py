"""``lakelog sql``: where statements end, and what each of them sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog_spark.commands.sql import run, statements
from plugins.lake.tests.stores import messages, open_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["select 1"], ["select 1"]),
        (["select 1; select 2;"], ["select 1", "select 2"]),
        (["select 1\n", "from t;\n", "select 2\n"], ["select 1\nfrom t", "select 2"]),
        (["select ';', \"a;b\", `c;d`; select 2"], ["select ';', \"a;b\", `c;d`", "select 2"]),
        (["select 'it\\';s'; select 2"], ["select 'it\\';s'", "select 2"]),
        (["select 'one;\n", "two'; select 2\n"], ["select 'one;\ntwo'", "select 2"]),
        (["select 1 -- no; end\n", "; select 2"], ["select 1 -- no; end", "select 2"]),
        (["select 1 /* no;\n", "end; */; select 2"], ["select 1 /* no;\nend; */", "select 2"]),
        (["select 'never ends; select 2"], ["select 'never ends; select 2"]),
        ([";; -- nothing\n", " /* ; */ ;"], []),
    ],
)
def test_statements_end_with_semicolons(texts: list[str], expected: list[str]) -> None:
    assert list(statements(texts)) == expected


def test_a_statement_is_there_as_soon_as_it_ends() -> None:
    def lines() -> Iterator[str]:
        yield "select 1;\n"
        raise AssertionError("it waits for more")

    assert next(statements(lines())) == "select 1"


def test_each_statement_sees_the_store_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    path = tmp_path / "s"
    with open_small(path) as owner:

        def asked() -> Iterator[str]:
            for count in (20, 30):
                owner.put_batch(list(messages(count)))
                yield "select count(*) from messages"

        found = run(path, asked(), 10, {"until": "readable"}, None)
        assert [rows[0][0] for _, rows, _ in found] == [20, 50]
