"""``lakelog sql``: SQL over the messages of a store, in Spark or DuckDB."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from lakelog.errors import SettingsError
from lakelog_cli import output
from lakelog_lake.commands.options import StorePath
from lakelog_lake.engine_provider import VIEW, is_installed, provider

if TYPE_CHECKING:
    import pyarrow as pa

_COMMENT: Final = r"--[^\n]*|/\*.*?\*/"
_QUOTED: Final[Mapping[str, str]] = {
    "spark": r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|['"`]""",
    "duckdb": r"""'[^']*'|"[^"]*"|(\$\w*\$).*?\1|['"]|\$\w*\$""",
}
"""Literals, quoted names and comments, complete or still open; a doubled quote splits a literal."""


def statements(texts: Iterable[str], dialect: str = "spark") -> Iterator[str]:
    """Yield each statement as soon as its semicolon, outside of quotes and comments, is read.

    :param dialect: ``spark`` or ``duckdb``: only Spark has backslash escapes in literals
    """
    token = re.compile(rf"{_QUOTED[dialect]}|{_COMMENT}|/\*|;", re.DOTALL)
    held = ""
    for text in texts:
        held += text
        start = 0
        for found in token.finditer(held):
            if found[0] in ("'", '"', "`", "/*") or re.fullmatch(r"\$\w*\$", found[0]):
                break  # wait for its end
            if found[0] == ";":
                yield from _unless_blank(held[start : found.start()])
                start = found.end()
        held = held[start:]
    yield from _unless_blank(held)


def _unless_blank(text: str) -> Iterator[str]:
    """Yield the statement unless it has only comments and blanks."""
    if re.sub(_COMMENT, "", text, flags=re.DOTALL).strip():
        yield text.strip()


SqlEngine: TypeAlias = Literal["auto", "duckdb", "spark"]
"""Engines; ``auto`` is Spark if a session runs in this process, else DuckDB."""


@output.prints()
def sql(  # each is an option of the command
    store: StorePath,
    query: Annotated[
        str | None,
        typer.Argument(help=f"Statements over the view {VIEW}, separated by ;. Default: stdin."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most rows to print; 0 for all rows.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a heading.")] = False,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="KEY=VALUE", help="Option of the reader; may be repeated."
        ),
    ] = None,
    engine: Annotated[
        SqlEngine, typer.Option(help="auto: a running Spark, else DuckDB, else Spark.")
    ] = "auto",
    master: Annotated[str | None, typer.Option(help="Spark's master; default local[*].")] = None,
) -> None:
    """Run SQL over the messages of a store, and print the rows.

    For example: lakelog sql STORE "select topic, count(*) from messages group by topic". The
    columns are those of a table, the options those of Spark's format `lakelog`, such as
    system_topics=true. Each statement reads the store as of the statement's start. Without QUERY,
    statements are read from standard input and each runs as soon as its semicolon is read.
    """
    from lakelog_lake.reading import duckdb

    if as_json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both", param_hint="--csv")
    given = dict(_pair(each) for each in options or ())
    engine = _chosen(engine, master)
    asked = statements(_lines() if query is None else [query], engine)
    if engine == "duckdb":
        found = duckdb.answers(store.absolute(), asked, limit, given)
    else:
        found = provider("spark").answers(store.absolute(), asked, limit, given, master)
    for answer in found:
        if answer.rows.num_columns:  # a statement such as CREATE has none
            _write(answer.rows, as_json=as_json, as_csv=as_csv)
        if answer.is_more:
            output.print_line(f"there are more rows: give --limit, now {limit}", err=True)


def _chosen(given: SqlEngine, master: str | None) -> SqlEngine:
    """The engine that was named, or the best one available, which is reported."""
    from lakelog_lake.reading import duckdb

    if given != "auto":
        return given
    if master is not None:
        return "spark"
    spark = provider("spark") if is_installed("spark") else None
    engine: SqlEngine = "spark"
    why = f"DuckDB is not installed ({duckdb.EXTRA})"
    if spark is not None and spark.is_running():
        why = "a Spark session is active"
    elif duckdb.is_installed():
        engine, why = "duckdb", "DuckDB is installed, and no Spark session is active"
    else:
        missing = None if spark is None else spark.missing()
        if spark is None or missing is not None:
            raise SettingsError("; ".join(filter(None, (why, missing))), key="--engine")
    output.print_line(f"lakelog: engine {engine}: {why}", err=True)
    return engine


def _lines() -> Iterator[str]:
    """The lines of standard input as they arrive, with a prompt on a terminal."""
    while True:
        if sys.stdin.isatty():
            sys.stderr.write("sql> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        yield line


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--option")
    return key, value


def _write(table: pa.Table, *, as_json: bool, as_csv: bool) -> None:
    columns = [_values(column) for column in table.columns]
    rows = list(zip(*columns, strict=True))
    names = _distinct_names(table.column_names)
    as_dicts = [dict(zip(names, row, strict=True)) for row in rows]
    if as_json:
        output.write_lines(as_dicts)
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(_csv_cell, table.column_names))
        writer.writerows(map(_csv_cell, row) for row in rows)
    else:
        output.write_rows(as_dicts, names=names)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Maps as dicts; times in UTC, whatever zone an engine gives, and of any year."""
    import pyarrow as pa

    from lakelog_lake.landing.export import iso

    try:
        found = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):  # beyond the year 9999 of datetime
        if not pa.types.is_timestamp(column.type):
            raise
        ms = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        found = [None if each is None else iso(each) for each in ms.to_pylist()]
    return [
        each.astimezone(UTC) if isinstance(each, datetime) and each.tzinfo else each
        for each in found
    ]


def _distinct_names(names: Sequence[str]) -> list[str]:
    """Rename equal columns, as JSON and CSV need distinct names."""
    return [name if names.count(name) == 1 else f"{name}_{at}" for at, name in enumerate(names, 1)]


def _csv_cell(value: Any) -> Any:
    """A value as it is for other programs, and without control characters for a terminal."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, list | dict):
        value = json.dumps(value, default=output.plain_value, ensure_ascii=False)
    text = str(output.plain_value(value))
    return output.shown(text) if output.is_terminal(sys.stdout) else text
