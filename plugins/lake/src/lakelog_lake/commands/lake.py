"""``lakelog lake``: maintenance of tables in which messages have landed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import attrs
import typer

from lakelog import times
from lakelog_cli import output
from lakelog_cli.options import AlwaysJson, time_option
from lakelog_lake.commands import options, rows
from lakelog_lake.engine_provider import provider

if TYPE_CHECKING:
    from lakelog_lake.verify.verify import Verified


app = typer.Typer(
    name="lake", help="Maintain tables in which messages have landed.", no_args_is_help=True
)

Target: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="KIND:PATH", help="As for dispatch --to: iceberg, delta, parquet or catalog."
    ),
]

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
To: TypeAlias = Annotated[
    str, typer.Option("--to", metavar="KIND:PATH", help="The table; as for dispatch.")
]
StoreId: TypeAlias = Annotated[
    str | None, typer.Option(metavar="ID", help="Identity of the store in the table.")
]
DeadLetters: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TABLE", help="Table of dead letters, if not TABLE_dead_letters."),
]
Master: TypeAlias = Annotated[str, typer.Option(help="Spark's master.")]


@app.command()
@output.prints(is_document=True, is_always=True)
def infer_schema(
    store: options.StorePath,
    topic: Annotated[str, typer.Option(help="The topic of the bodies.")],
    messages: Annotated[int, typer.Option(min=1, help="Number of messages to read.")] = 10000,
    times: Annotated[
        bool,
        typer.Option("--times/--no-times", help="Infer times and dates from text."),
    ] = True,
    _as_json: AlwaysJson = True,
) -> None:
    """Print a JSON Schema of the bodies of a topic: review it, keep it, give it as json:FILE.

    Fields without a single type are left out, and listed on stderr.
    """
    from lakelog_lake.bodies.json_schema import infer_topic

    found = infer_topic(store.absolute(), topic, messages, times=times)
    output.write_document(found.schema)
    others = f", {found.others} others are not" if found.others else ""
    output.print_line(f"{found.read} bodies are JSON objects{others}", err=True)
    for field in found.left_out:
        output.print_line(f"left out {field}", err=True)


@app.command(epilog=times.HELP)
@output.prints(rows.QueueRow, rows.RangeRow, rows.NotComparedRow, rows.VerifySummary)
def verify(  # noqa: PLR0913, PLR0917  # each is an option of the command
    store: options.StorePath,
    to: To,
    table: options.Table = None,
    engine: Annotated[
        options.EngineName, typer.Option(help="Engine of the comparison.")
    ] = "processes",
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic landed; may be repeated.")
    ] = None,
    store_id: StoreId = None,
    since: Annotated[
        int | None, time_option("Only messages stored at this time or later landed")
    ] = None,
    dead_letters: DeadLetters = None,
    system_topics: Annotated[
        bool, typer.Option("--system-topics", help="RocketMQ's own topics landed as well.")
    ] = False,
    storage: options.Storage = None,
    master: Master = "local[*]",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the result as a page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a table with the log, row by row; exit 1 if they differ.

    Up to the position of the table, every record must be one row with the same key, body and other
    columns; a parsed body is parsed again by the schema under which it landed. Each range that
    differs is listed. Rows of messages that were deleted from the log are not compared.
    """
    from lakelog_lake.commands.report import page, print_verified
    from lakelog_lake.landing.targets import identity_of
    from lakelog_lake.log.wanted import Chosen
    from lakelog_lake.verify.landed_table import all_opened
    from lakelog_lake.verify.verify import VerifyRequest, verify_here

    engine = options.chosen(engine)
    path = store.absolute()
    options.check_topics(path, topics or ())
    name = identity_of(store, store_id)
    compared: list[Verified] = []
    for each in all_opened(to, table, dead_letters, options.pairs_of(storage)):
        if topics and each.topic is not None and each.topic not in topics:
            continue
        wanted = topics if each.topic is None else [each.topic]
        chosen = Chosen.of(wanted, since, system_topics=system_topics)
        asked = VerifyRequest(path, name, each.table, chosen, each.dead_letters)
        if engine == "processes":
            compared.append(verify_here(asked))
        else:
            compared.append(provider(engine).verified(asked, master))
        print_verified(compared[-1], as_json=as_json)
    if html is not None:
        output.write_file(html, page(path, compared))
    output.exit_if_found(not all(each.is_clean for each in compared))


@app.command()
@output.prints(rows.StatusRow)
def status(
    store: options.StorePath,
    to: To,
    table: options.Table = None,
    store_id: StoreId = None,
    storage: options.Storage = None,
    as_json: AsJson = False,
) -> None:
    """Show the landed position of a store, and the sizes of its tables; reads no data file.

    The lag is the durable part of the log that has not landed.
    """
    from lakelog_lake.commands.report import print_status
    from lakelog_lake.landing.targets import identity_of
    from lakelog_lake.maintenance.tables import statuses

    name = identity_of(store, store_id)
    found = list(statuses(store.absolute(), name, to, table, options.pairs_of(storage)))
    print_status(found, as_json=as_json)


@app.command()
@output.prints(rows.CompactedRow)
def compact(
    to: Target,
    table: options.Table = None,
    target_mib: Annotated[
        int, typer.Option(min=1, help="Merge files smaller than this, in MiB.")
    ] = 128,
    storage: options.Storage = None,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Merge small files; rows, their order in each queue, and positions stay.

    Dispatchers may run meanwhile. The old files stay until they expire. Iceberg needs Java.
    """
    from lakelog_lake.maintenance.tables import compact as compact_tables

    pairs = options.pairs_of(storage)
    for name, done in compact_tables(to, table, target_mib << 20, master, pairs):
        text = f"{name}: {done.removed} files became {done.made}"
        output.write_result({"table": name, **attrs.asdict(done)}, text, as_json=as_json)


@app.command()
@output.prints(rows.ExpiredRow)
def expire(
    to: Target,
    table: options.Table = None,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Remove versions that were replaced longer ago: 7d, 12h."
        ),
    ] = "7d",
    keep: Annotated[int, typer.Option(min=1, help="Newest versions to keep in any case.")] = 1,
    storage: options.Storage = None,
    as_json: AsJson = False,
) -> None:
    """Remove old versions of a table, and files that only they reference; needs no Java.

    The rows of the newest version and the positions stay. Files that no version references, left by
    killed processes, are removed once they are a day old.
    """
    from lakelog_lake.maintenance.tables import expire as expire_tables
    from lakelog_lake.maintenance.terms import RetentionTerms
    from lakelog_lake.tables.settings import duration

    retention = RetentionTerms(duration(older_than), keep)
    for name, done in expire_tables(to, table, retention, options.pairs_of(storage)):
        text = f"{name}: {done.versions} versions and {done.files} files removed"
        output.write_result({"table": name, **attrs.asdict(done)}, text, as_json=as_json)


@app.command()
@output.prints(rows.RewindRow)
def rewind(  # each is an option of the command
    store: options.StorePath,
    to: To,
    table: options.Table = None,
    store_id: StoreId = None,
    dead_letters: DeadLetters = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove the rows; otherwise only list them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove rows that are no longer in a log that was cut, so that landing can continue.

    Every row is compared with the log. From the first row on that differs from the log, all rows of
    the store are removed, in one commit with its position; the next dispatch lands the present
    records. Without --yes the rows are only listed; the exit code is 1 if there are any.
    """
    from lakelog_lake.commands.report import print_rewind
    from lakelog_lake.landing.targets import identity_of
    from lakelog_lake.maintenance.removal import planned

    path, found = store.absolute(), False
    for each in planned(path, identity_of(store, store_id), to, table, dead_letters):
        found = True
        print_rewind(each, is_done=yes, as_json=as_json)
        if yes:
            each.do()
    if not found and not as_json:
        output.print_line("the log holds everything that has landed: nothing to do")
    output.exit_if_found(found and not yes)


@app.command()
@output.prints(rows.RelandedRow)
def reland(
    to: Target,
    bodies: Annotated[
        list[str],
        typer.Option(
            "--body",
            metavar="TOPIC=FORMAT[:FILE]",
            help="As for dispatch, with the corrected schema.",
        ),
    ],
    table: options.Table = None,
    partition: Annotated[
        str, typer.Option(metavar="KEYS", help="As for dispatch; the table's partition.")
    ] = "topic,day",
    dead_letters: DeadLetters = None,
    storage: options.Storage = None,
    as_json: AsJson = False,
) -> None:
    """Land dead letters that parse with a corrected schema, and remove them from their table.

    Each row lands once, also after a kill: then repeat the command. Rows that still do not parse
    stay. Dispatchers may run; give them the corrected schema first, so that no new ones come.
    """
    from lakelog_lake.commands.dispatch import parsers_of
    from lakelog_lake.landing.targets import TableSpec
    from lakelog_lake.maintenance.removal import reland as reland_tables
    from lakelog_lake.tables.shape import parse

    parsers, found = parsers_of(bodies), False
    for done in reland_tables(
        TableSpec(to, table, parse(partition), parsers, dead_letters, options.pairs_of(storage))
    ):
        found = True
        dead = f"{done.taken_out} dead letters removed, {done.left} left"
        text = f"{done.table}: {done.landed} rows landed, {dead}"
        output.write_result(attrs.asdict(done), text, as_json=as_json)
    if not found and not as_json:
        output.print_line(f"{to} has no table of dead letters: there is nothing to land again")
