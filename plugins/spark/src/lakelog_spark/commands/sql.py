"""``lakelog sql``: Spark SQL over the messages of a store."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from pyspark.sql import Row

VIEW: Final = "messages"


def sql(  # each is an option of the command
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")],
    query: Annotated[str, typer.Argument(help=f"Of the view {VIEW}.")],
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
    Needs Java.
    """
    if as_json and as_csv:
        raise typer.BadParameter("one of --json and --csv", param_hint="--csv")
    given = dict(_pair(each) for each in options or ())
    names, rows, more = run(store.absolute(), query, limit, given, master)
    _write(names, rows, as_json=as_json, as_csv=as_csv)
    if more:
        typer.echo(f"there are more rows: give --limit, now {limit}", err=True)


def run(
    store: Path, query: str, limit: int, options: Mapping[str, str], master: str | None
) -> tuple[list[str], list[Row], bool]:
    """The columns, the rows, and whether there are more of them.

    Raises :class:`~lakelog_spark.errors.NoJava`, what opening the store raises, and
    :class:`~lakelog_lake.errors.SparkFailed`.
    """
    import lakelog
    from lakelog_spark.sessions.fitting import need_spark

    need_spark()
    from lakelog_spark.sessions.jobs import spark_session, told
    from lakelog_spark.source.data_source import register
    from lakelog_spark.source.options import ReadOptions

    with lakelog.open(store, mode="read"):  # what is no store is told before Spark starts
        ReadOptions.of({**options, "path": str(store)})
    with spark_session(None, master) as spark, told("the query failed"):
        register(spark)
        reader = spark.read.format("lakelog").options(**options)
        reader.load(str(store)).createOrReplaceTempView(VIEW)
        found = spark.sql(query)
        names = list(found.columns)
        rows = found.limit(limit + 1).collect() if limit else found.collect()
    return names, rows[: limit or None], bool(limit) and len(rows) > limit


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
