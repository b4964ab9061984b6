"""SQL by DuckDB gives the rows that a plain scan finds, and reads no more than it has to."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.errors import SettingsError
from lakelog.format.layout import segment_name
from lakelog_lake.commands.sql import statements
from lakelog_lake.errors import CorruptLog, QueryFailed, StatementRefused
from lakelog_lake.log.records import store_name
from lakelog_lake.reading import duckdb
from lakelog_lake.reading.duckdb import answers
from lakelog_testing.samples import copy_store
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.reading.predicates import RandomPredicates, Row
from plugins.lake.tests.stores import SEGMENT, expected_rows, filled, messages, open_small

COUNT = 400


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("made") / "store", COUNT)


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """To be changed."""
    return copy_store(made, tmp_path / "store")


def asked(
    path: Path, *statements: str, limit: int = 0, options: Mapping[str, str] | None = None
) -> list[list[Row]]:
    return [
        each.rows.to_pylist(maps_as_pydicts="lossy")
        for each in answers(path, statements, limit, options or {})
    ]


def rows_of(path: Path) -> list[Row]:
    with lakelog.open(path, mode="read") as store:
        return expected_rows(store.scan(), store_name(path))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["physical_offset"])


def test_all_columns_are_those_of_the_log(store: Path) -> None:
    (found,) = asked(store, "select * from messages")
    assert in_order(found) == rows_of(store)


def test_the_view_may_be_used_twice_in_a_statement(store: Path) -> None:
    query = (
        "select a.physical_offset from messages a join messages b on a.unique_key = b.unique_key "
        "where a.topic = 'topic-1' and b.queue_id = 2 "
        "union all select physical_offset from messages where topic = 'topic-2'"
    )
    (found,) = asked(store, query)
    rows = rows_of(store)
    expected = [r for r in rows if (r["topic"], r["queue_id"]) == ("topic-1", 2)]
    expected += [r for r in rows if r["topic"] == "topic-2"]
    assert in_order(found) == in_order(
        [{"physical_offset": r["physical_offset"]} for r in expected]
    )


def literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"timestamptz '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_random_predicates_find_what_a_scan_finds(store: Path, seed: int) -> None:
    rows = rows_of(store)
    made = RandomPredicates(rows, random.Random(seed), literal)
    predicates = [made.predicate() for _ in range(25 if seed == 1 else 600)]
    queries = [f"select physical_offset from messages where {each.sql}" for each in predicates]
    for each, found in zip(predicates, asked(store, *queries), strict=True):
        expected = [row["physical_offset"] for row in each.of(rows)]
        assert sorted(row["physical_offset"] for row in found) == expected, each.sql


def test_a_topic_that_is_named_narrows_what_is_read(store: Path) -> None:
    with open_small(store, flush="none") as owner:
        owner.put_batch([lakelog.Message("rare", b"x", queue_id=0) for _ in range(2)])
        owner.put_batch(list(messages(COUNT)))
    _break(store)
    with pytest.raises(CorruptLog):
        asked(store, "select count(*) from messages")
    count = "select count(*) n from messages where topic = 'rare'"
    assert asked(store, count, f"{count} and queue_id in (0, 2)") == [[{"n": 2}], [{"n": 2}]]


def test_rows_of_damage_have_every_column_that_is_asked_for(store: Path) -> None:
    _break(store)
    options = {"corrupt": "collect"}
    rows, count, places = asked(
        store,
        "select * from messages where error is not null",
        "select count(*) n, count(error) bad, count(topic) good from messages",
        "select physical_offset from messages where topic is null",
        options=options,
    )
    assert len(rows) == len(places) > 0
    assert count[0]["n"] == count[0]["good"] + count[0]["bad"] < COUNT
    assert count[0]["bad"] == len(rows)


def _break(store: Path) -> None:
    """Overwrite the middle of a segment in which no message of the rare topic is."""
    with (store / "commitlog" / segment_name(SEGMENT)).open("r+b") as file:
        file.seek(SEGMENT // 2)
        file.write(bytes(1000))


def test_each_statement_sees_the_store_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_small(path) as owner:

        def later() -> Iterator[str]:
            for count in (20, 30):
                owner.put_batch(list(messages(count)))
                yield "select count(*) from messages"

        found = answers(path, later(), 10, {"until": "readable"})
        assert [each.rows.column(0)[0].as_py() for each in found] == [20, 50]


def test_no_more_rows_come_than_were_asked_for(store: Path) -> None:
    (answer,) = answers(store, ["select queue_id from messages"], 7, {})
    assert (len(answer.rows), answer.is_more) == (7, True)
    (answer,) = answers(store, ["select queue_id from messages"], COUNT, {})
    assert (len(answer.rows), answer.is_more) == (COUNT, False)


def test_names_are_no_variables_of_the_program(store: Path) -> None:
    with pytest.raises(StatementRefused, match="options"):
        asked(store, "select * from options")


def test_statements_that_fail_say_why_in_one_line(store: Path) -> None:
    with pytest.raises(StatementRefused, match=r"\Athe query failed: .*nothing.*\Z"):
        asked(store, "select nothing from messages")
    with pytest.raises(QueryFailed, match="Could not convert"):
        asked(store, "select topic::int from messages")


def test_options_are_those_of_the_format(store: Path) -> None:
    (found,) = asked(store, "select distinct topic t from messages", options={"topics": "topic-1"})
    assert found == [{"t": "topic-1"}]
    with pytest.raises(SettingsError, match="topics"):
        asked(store, "select 1", options={"topic": "x"})


def test_times_of_any_year_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_small(path) as owner:
        owner.put_batch([lakelog.Message("t", b"x", born_timestamp_ms=253_402_300_800_000)])
    found = run("sql", path, "select born_timestamp t from messages", "--json")
    assert found.stdout == '{"t":"+010000-01-01T00:00:00.000Z"}\n'


def test_the_command_says_which_engine_answers(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select topic, count(*) n from messages group by topic order by topic"
    found = run("sql", store, query, "--json")
    assert found.exit_code == 0, found.output
    assert '{"topic":"topic-0","n":134}' in found.stdout
    assert "engine duckdb" in found.stderr
    csv = run("sql", store, "select '1', 2 as b;", "--csv", "--engine", "duckdb")
    assert csv.stdout == "'1',b\n1,2\n"
    assert not csv.stderr
    monkeypatch.setattr(duckdb, "is_installed", lambda: False)
    without = run("sql", store, query, "--engine", "duckdb")
    assert without.exit_code == 2
    assert "DuckDB is not installed: pip install 'lakelog-lake[duckdb]'" in without.stderr


# --- where statements end ---

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
