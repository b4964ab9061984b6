"""``lakelog dispatch`` and ``lakelog export``: a store's messages to tables and files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from lakelog_spark.landing.dispatcher import Landed
    from lakelog_spark.landing.engines import Engine

_MIB = 1 << 20


class EngineName(StrEnum):
    """Who writes the data files."""

    ARROW = "arrow"
    SPARK = "spark"


class Format(StrEnum):
    """What an export makes."""

    PARQUET = "parquet"
    ICEBERG = "iceberg"
    DELTA = "delta"
    JSONL = "jsonl"
    CSV = "csv"


class Gaps(StrEnum):
    """What to do where messages were deleted before they landed."""

    REFUSE = "refuse"
    ACCEPT = "accept"


class Corrupt(StrEnum):
    """What to do at bytes that are no whole record."""

    FAIL = "fail"
    SKIP = "skip"


StorePath: TypeAlias = Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")]
Table: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAMESPACE.TABLE", help="Of Iceberg; else lakelog.messages."),
]
EngineOption: TypeAlias = Annotated[EngineName, typer.Option(help="Who writes the data files.")]
Processes: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="How many write at once; else one per core.")
]
StoreId: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Who the store is in the table, if not by its own UUID."),
]
CorruptOption: TypeAlias = Annotated[Corrupt, typer.Option(help="At damage: stop or pass over.")]
SystemTopics: TypeAlias = Annotated[
    bool, typer.Option("--system-topics", help="RocketMQ's own topics, too.")
]


def dispatch(  # noqa: PLR0913, PLR0917  # each is an option of the command
    store: StorePath,
    to: Annotated[
        str,
        typer.Option("--to", metavar="KIND:PATH", help="iceberg, delta or parquet; a folder."),
    ],
    table: Table = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when all has landed.")] = False,
    engine: EngineOption = EngineName.ARROW,
    processes: Processes = None,
    interval_ms: Annotated[int, typer.Option(min=10, help="How often to look for more.")] = 500,
    pass_mib: Annotated[int, typer.Option(min=1, help="MiB of the log in one commit.")] = 512,
    store_id: StoreId = None,
    corrupt: CorruptOption = Corrupt.FAIL,
    gaps: Annotated[Gaps, typer.Option(help="Where messages are gone too early.")] = Gaps.REFUSE,
    system_topics: SystemTopics = False,
) -> None:
    """Land every durable message in a table, exactly once, and go on with those that come.

    The table itself says how far it has come: a run that was killed, or a second one, neither loses
    nor doubles a row. SIGTERM and Ctrl-C finish what is under way.
    """
    from lakelog_spark.landing.dispatcher import Source, land
    from lakelog_spark.landing.ranges import Bounds
    from lakelog_spark.landing.runner import stopped_by_signals, until_done, until_stopped
    from lakelog_spark.landing.selection import Chosen
    from lakelog_spark.landing.targets import identity_of, sink_for

    source = Source(
        store.absolute(),
        identity_of(store, store_id),
        skip_damage=corrupt is Corrupt.SKIP,
        chosen=Chosen(system_topics),
        accept_gaps=gaps is Gaps.ACCEPT,
    )
    sink = sink_for(to, table)
    sink.prepare()
    with stopped_by_signals() as stop, _engine(engine, processes) as run:
        one_pass = partial(land, source, sink, run, Bounds(pass_bytes=pass_mib * _MIB))
        if once:
            until_done(one_pass, stop, _say)
        else:
            until_stopped(one_pass, stop, interval_ms / 1000, _say)


def export(  # noqa: PLR0913, PLR0917  # each is an option of the command
    store: StorePath,
    to: Annotated[Path, typer.Option("--to", metavar="PATH", help="A folder; for text a file.")],
    made: Annotated[Format, typer.Option("--format", help="What to make.")] = Format.PARQUET,
    table: Table = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Only of this topic; may be repeated.")
    ] = None,
    since: Annotated[datetime | None, typer.Option(help="Only stored since then, in UTC.")] = None,
    processes: Processes = None,
    store_id: StoreId = None,
    corrupt: CorruptOption = Corrupt.FAIL,
    system_topics: SystemTopics = False,
) -> None:
    """Write what a store holds now to a table, or to one file, without Java.

    Tables follow the rules of `dispatch`: another export adds what is new.
    """
    from lakelog_spark.landing.dispatcher import Source
    from lakelog_spark.landing.exporting import to_file, to_table
    from lakelog_spark.landing.selection import Chosen
    from lakelog_spark.landing.targets import identity_of

    source = Source(
        store.absolute(),
        identity_of(store, store_id),
        skip_damage=corrupt is Corrupt.SKIP,
        chosen=Chosen.of(topics, since, system_topics=system_topics),
    )
    if made in (Format.JSONL, Format.CSV):
        rows = to_file(source, to, made.value)
    else:
        with _engine(EngineName.ARROW, processes) as run:
            rows = to_table(source, f"{made.value}:{to}", table, run, _say)
    typer.echo(f"{rows} rows")


@contextmanager
def _engine(name: EngineName, count: int | None) -> Iterator[Engine]:
    from lakelog_spark.landing import engines

    if name is EngineName.ARROW:
        with engines.processes(count) as run:
            yield run
        return
    from lakelog_spark.local import session

    started = session(master=f"local[{count or '*'}]")
    try:
        yield engines.spark(started)
    finally:
        started.stop()


def _say(landed: Landed) -> None:
    """One line for each pass, on stderr."""
    what = f"{landed.rows} rows in {landed.files} files" if landed.won else "landed by another"
    damaged = f", {landed.damaged} damaged passed over" if landed.damaged else ""
    typer.echo(f"{landed.start} to {landed.end}: {what}{damaged}", err=True)
