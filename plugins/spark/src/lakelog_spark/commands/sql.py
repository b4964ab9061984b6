"""``lakelog sql``: Spark SQL over the messages of a store."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from pyspark.sql import Row

VIEW: Final = "messages"
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN: Final = re.compile(
    rf"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|{_COMMENT.pattern}|['"`]|/\*|;""", re.DOTALL
)
"""Texts, names, comments, what begins one and does not end it, and the end of a statement."""
_OPENED: Final = ("'", '"', "`", "/*")


def sql(  # each is an option of the command
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")],
    query: Annotated[
        str | None,
        typer.Argument(help=f"Statements of the view {VIEW}, with ; between; else from stdin."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows to print; 0 is all.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a heading.")] = False,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="Of the reader; may be repeated."),
    ] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
) -> None:
    """Run Spark SQL over the messages of a store, and print the rows.

    For example: lakelog sql STORE "select topic, count(*) from messages group by topic". The
    columns are those of the format `lakelog`, as are the options, such as system_topics=true.
    Each statement sees the store as it is when that begins. Without QUERY, statements are read from
    standard input, each up to its ; and run as they come. Needs Java.
    """
    if as_json and as_csv:
        raise typer.BadParameter("one of --json and --csv", param_hint="--csv")
    given = dict(_pair(each) for each in options or ())
    asked = statements(_lines() if query is None else [query])
    for names, rows, more in run(store.absolute(), asked, limit, given, master):
        if names:  # a statement such as CREATE has none
            _write(names, rows, as_json=as_json, as_csv=as_csv)
        if more:
            typer.echo(f"there are more rows: give --limit, now {limit}", err=True)


def _lines() -> Iterator[str]:
    """Of standard input, as they come; a terminal is asked for them."""
    while True:
        if sys.stdin.isatty():
            typer.echo("sql> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line


def statements(texts: Iterable[str]) -> Iterator[str]:
    """What stands between semicolons that are in no quotes and no comment, as soon as it ends."""
    held = ""
    for text in texts:
        held += text
        start = 0
        for found in _TOKEN.finditer(held):
            if found[0] in _OPENED:
                break  # what ends it has not come yet
            if found[0] == ";":
                yield from _said(held[start : found.start()])
                start = found.end()
        held = held[start:]
    yield from _said(held)


def _said(text: str) -> Iterator[str]:
    """Nothing where nothing but comments and blanks is there."""
    if _COMMENT.sub("", text).strip():
        yield text.strip()


def run(
    store: Path, asked: Iterable[str], limit: int, options: Mapping[str, str], master: str | None
) -> Iterator[tuple[list[str], list[Row], bool]]:
    """Of each statement the columns, the rows, and whether there are more of them.

    Raises :class:`~lakelog_spark.errors.NoJava`, what opening the store raises, and
    :class:`~lakelog_lake.errors.SparkFailed`.
    """
    import lakelog
    from lakelog_spark.sessions.fitting import need_spark

    need_spark()
    from lakelog_spark.sessions.jobs import spark_session, told
    from lakelog_spark.source.data_source import register
    from lakelog_spark.source.options import ReadOptions
    from lakelog_spark.where import read

    with lakelog.open(store, mode="read"):  # what is no store is told before Spark starts
        ReadOptions.of({**options, "path": str(store)})
    with spark_session(None, master) as spark:
        register(spark)
        for query in asked:
            with told("the query failed"):
                frame = read(spark, store, **options)  # a new one, as it keeps the end of the log
                frame.createOrReplaceTempView(VIEW)
                found = spark.sql(query)
                names = list(found.columns)
                rows = found.limit(limit + 1).collect() if limit else found.collect()
            yield names, rows[: limit or None], bool(limit) and len(rows) > limit


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--option")
    return key, value


def _write(names: Sequence[str], rows: Sequence[Row], *, as_json: bool, as_csv: bool) -> None:
    from lakelog_lake.commands.printing import plain, write_json, write_rows

    as_dicts = [dict(zip(_told_apart(names), map(_value, row), strict=True)) for row in rows]
    if as_json:
        write_json(as_dicts)
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([_cell(_value(each), plain) for each in row])
    else:
        write_rows(as_dicts, _told_apart(names))


def _told_apart(names: Sequence[str]) -> list[str]:
    """SQL allows columns of one name."""
    return [name if names.count(name) == 1 else f"{name}_{at}" for at, name in enumerate(names, 1)]


def _value(value: Any) -> Any:
    """A struct as a map."""
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value


def _cell(value: Any, plain: Any) -> Any:
    import json

    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | dict):
        return json.dumps(value, default=plain, ensure_ascii=False)
    return plain(value)
