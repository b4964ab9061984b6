"""``lakelog dispatch`` and ``lakelog export``: messages of a store to tables and files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import attrs
import typer

import lakelog
from lakelog.errors import SettingsError
from lakelog_cli import exitcodes, output
from lakelog_cli.options import AsJson, Since
from lakelog_lake.commands import options
from lakelog_lake.commands.rows import ExportedRow, LandedRow
from lakelog_lake.engine_provider import nothing, provider
from lakelog_lake.tables.settings import DEFAULT_INTERVAL_MS, ParquetCompression, Resume

if TYPE_CHECKING:
    from lakelog_lake.bodies.base import BodyParser
    from lakelog_lake.errors import TemporaryError
    from lakelog_lake.landing.dispatcher import Landed, WatchdogNotifier
    from lakelog_lake.sinks.locations import TableLocation
    from lakelog_lake.tasks.engines import Engine
    from lakelog_lake.tasks.task import LandingSource, Task, Written


@attrs.define
class _LandingBar:
    """Moves with each finished task, as a pass may take minutes.

    :ivar _then: called after each task
    :ivar _end: of the log when the last pass began, in bytes
    """

    _store: Path
    _advance: output.ProgressBar
    _then: Callable[[], object]
    _start: int | None = None
    _ends: list[int] = attrs.field(factory=list)
    _end: int = 0

    def watched(self, engine: Engine) -> Engine:
        """Return ``engine`` with tasks that move the bar; unchanged where stderr is no terminal."""
        if not output.is_terminal(sys.stderr):
            return engine

        def run(tasks: Sequence[Task]) -> Sequence[Written]:
            self._begin(tasks)
            return engine(tasks)

        return run

    def done(self) -> None:
        """Count one finished task; tasks are reported in their order."""
        self._then()
        if self._ends and self._start is not None:
            self._advance(self._ends.pop(0) - self._start, self._end - self._start)

    def _begin(self, tasks: Sequence[Task]) -> None:
        if self._start is None:
            self._start = tasks[0].span.start
        self._ends = [each.span.end for each in tasks]
        with lakelog.open(self._store, mode="read") as store:
            self._end = max(store.max_offset, self._ends[-1])
        self._advance(tasks[0].span.start - self._start, self._end - self._start)


_MIB = 1 << 20
CATALOG = "catalog:"
SPARK_CATALOG = "spark:"
"""The prefix of tables that only a Spark session can reach."""


EngineOption: TypeAlias = Annotated[
    options.EngineName,
    typer.Option(help="Engine for data files; auto: spark if it and Java are installed."),
]
Processes: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Number of parallel tasks; default one per core.")
]
StoreId: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Identity of the store in the table; default its UUID."),
]
Corrupt: TypeAlias = Annotated[
    Literal["fail", "skip"], typer.Option(help="Action at damage: stop, or skip it.")
]
CompressionOption: TypeAlias = Annotated[
    ParquetCompression, typer.Option(help="Compression of data files; auto: zstd if bodies shrink.")
]
SystemTopics: TypeAlias = Annotated[
    bool, typer.Option("--system-topics", help="Include RocketMQ's own topics.")
]


@output.prints(LandedRow)
def dispatch(  # noqa: PLR0913, PLR0917  # each is an option of the command
    store: options.StorePath,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="KIND:PATH",
            help="iceberg, delta or parquet, and a folder or URI; or catalog:NAME, spark:CATALOG.",
        ),
    ],
    table: options.Table = None,
    storage: options.Storage = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when everything has landed.")] = False,
    engine: EngineOption = "auto",
    processes: Processes = None,
    interval_ms: Annotated[
        int, typer.Option(min=10, help="Time between passes.")
    ] = DEFAULT_INTERVAL_MS,
    pass_mib: Annotated[int, typer.Option(min=1, help="MiB of the log in one commit.")] = 2048,
    store_id: StoreId = None,
    corrupt: Corrupt = "fail",
    gaps: Annotated[
        Literal["refuse", "accept"],
        typer.Option(help="Action if unlanded messages were deleted."),
    ] = "refuse",
    resume: Annotated[
        Resume | None,
        typer.Option(help="What counts if a table does not show how far the store has landed."),
    ] = None,
    system_topics: SystemTopics = False,
    partition: Annotated[
        str,
        typer.Option(metavar="KEYS", help="Partition columns, of topic,day,hour,store; or none."),
    ] = "topic,day",
    file_mib: Annotated[int, typer.Option(min=1, help="Largest size of a data file.")] = 128,
    compression: CompressionOption = ParquetCompression.AUTO,
    history: Annotated[
        str | None,
        typer.Option(metavar="KEPT", help="Versions that tables keep: 100, 12h, or off for all."),
    ] = None,
    compact: Annotated[
        int | None,
        typer.Option(min=1, metavar="PASSES", help="Merge small files every PASSES passes."),
    ] = None,
    bodies: Annotated[
        list[str] | None,
        typer.Option(
            "--body",
            metavar="TOPIC=FORMAT[:FILE]",
            help="Parse bodies to columns; TOPIC may be *. May be repeated.",
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE", help="Table of bodies that do not parse; default TABLE_dead_letters."
        ),
    ] = None,
    max_dead_letters: Annotated[
        int | None,
        typer.Option(min=0, metavar="COUNT", help="Stop at more dead letters than this."),
    ] = None,
    pin: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the pin that keeps segments until they have landed."
        ),
    ] = None,
    no_pin: Annotated[
        bool, typer.Option("--no-pin", help="Write no pin: retention may delete unlanded messages.")
    ] = False,
    commit_lock: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            writable=True,
            help="Lock file; runs on this machine with the same file commit one at a time.",
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's cluster; default this machine.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Spark configuration, such as a catalog; may be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Land every durable message in a table, exactly once, and continue with new ones.

    The table itself stores the position: neither a killed run nor a second one loses or duplicates
    a row. SIGTERM and Ctrl-C finish the present pass; with --once the exit code is then 130, as
    messages may be left. It is 1 if damage or --max-dead-letters ends the run, and with --once if
    all rows became dead letters. A pin makes retention keep messages that have not landed, also
    between runs: 'lakelog pins STORE' shows it, 'lakelog pins remove' removes it.
    Iceberg tables of any catalog: --to spark:CATALOG --table NAMESPACE.TABLE, with the catalog
    given by --conf.
    """
    from lakelog_lake.landing import committing, dispatcher, targets
    from lakelog_lake.maintenance.folders import PeriodicCompaction
    from lakelog_lake.sinks.locations import location_of
    from lakelog_lake.tables import shape
    from lakelog_lake.tasks.task import TaskLimits

    source = _source(store, store_id, corrupt, gaps, system_topics=system_topics)
    keys = shape.parse(partition)
    given, storing = parsers_of(bodies or []), options.pairs_of(storage)
    if not to.startswith(SPARK_CATALOG):
        location_of(to, storing)  # refused before Spark starts, which takes seconds
    spec = targets.TableSpec(
        to, table, keys, given, dead_letters, storing, compression, history, resume
    )
    at_once = processes or len(os.sched_getaffinity(0))
    bounds = TaskLimits(pass_bytes=pass_mib * _MIB, file_bytes=file_mib * _MIB, at_once=at_once)
    alive = dispatcher.WatchdogNotifier.of_this_process()
    lock = None if commit_lock is None else committing.CommitLock(commit_lock.absolute(), alive)
    config = options.pairs_of(conf, "--conf")
    reporter = _PassReporter(alive, _print_landed_json if as_json else _print_landed)
    with (
        dispatcher.stopped_by_signals() as stop,
        _running(source.path, engine, processes, to, master, config, alive) as (run, place),
    ):
        lander = dispatcher.LandingDispatcher.of(
            source,
            spec,
            run,
            bounds,
            place,
            pin=pin,
            is_pinned=not no_pin,
            on_phase=alive,
            max_dead_letters=max_dead_letters,
            is_last=stop.is_set,
            commit_lock=lock,
        )
        if compact is not None:
            reporter.then = PeriodicCompaction(lander.targets, compact, bounds.file_bytes)
        with lander:
            alive.ready()
            is_done = True
            if once:
                is_done = dispatcher.until_done(lander.one_pass, stop, reporter)
            else:
                waits = dispatcher.LandingWaits(stop, interval_ms / 1000, lander, alive)
                dispatcher.until_stopped(lander.one_pass, reporter, _print_retry, waits)
                alive.stopping()
    if not is_done:
        output.print_line("lakelog: stopped before everything had landed; run it again", err=True)
        raise typer.Exit(exitcodes.INTERRUPTED)
    if once and 0 < reporter.rows == reporter.dead_letters:
        output.print_line(
            f"lakelog: all {reporter.rows} rows are dead letters, as no body parses: see --body",
            err=True,
        )
        raise typer.Exit(exitcodes.FOUND)


def _source(
    store: Path,
    store_id: str | None,
    corrupt: str,
    gaps: str = "refuse",
    *,
    topics: Sequence[str] | None = None,
    since_ms: int | None = None,
    system_topics: bool,
) -> LandingSource:
    from lakelog_lake.landing import targets
    from lakelog_lake.log.wanted import Chosen
    from lakelog_lake.tasks.task import LandingSource

    return LandingSource(
        store.absolute(),
        targets.identity_of(store, store_id),
        skip_damage=corrupt == "skip",
        chosen=Chosen.of(topics, since_ms, system_topics=system_topics),
        accept_gaps=gaps == "accept",
    )


@attrs.define
class _PassReporter:
    """Prints each pass, and counts what landed.

    :ivar rows: dead letters included
    :ivar then: called after each pass
    """

    alive: WatchdogNotifier
    show: Callable[[Landed], None]
    rows: int = 0
    dead_letters: int = 0
    then: Callable[[], None] = nothing

    def __call__(self, landed: Landed) -> None:
        """Print the result of a pass."""
        self.show(landed)
        self.rows += landed.rows
        self.dead_letters += landed.dead_letters
        self.alive.send_status(f"landed up to {landed.end}")
        self.then()


def parsers_of(given: Sequence[str]) -> dict[str, BodyParser]:
    """The parsers by topic."""
    from lakelog_lake.bodies.formats import parser_for

    found = {}
    for text in given:
        topic, equals, what = text.partition("=")
        if not topic or not equals or topic in found:
            raise SettingsError(
                f"{text!r} is not TOPIC=FORMAT, or gives a topic twice", key="--body"
            )
        found[topic] = parser_for(what)
    return found


@output.prints(ExportedRow)
def export(  # noqa: PLR0913, PLR0917  # each is an option of the command
    store: options.StorePath,
    to: Annotated[
        str, typer.Option("--to", metavar="PATH", help="A folder or URI; for text a file.")
    ],
    made: Annotated[
        Literal["parquet", "iceberg", "delta", "jsonl", "csv"],
        typer.Option("--format", help="Format of the output."),
    ] = "parquet",
    table: options.Table = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")
    ] = None,
    since: Since = None,
    processes: Processes = None,
    store_id: StoreId = None,
    corrupt: Corrupt = "fail",
    system_topics: SystemTopics = False,
    storage: options.Storage = None,
    compression: CompressionOption = ParquetCompression.AUTO,
    as_json: AsJson = False,
) -> None:
    """Write the present messages of a store to a table, or to one file, without Java.

    Tables follow the rules of `dispatch`: another export adds new messages. An unknown --topic is a
    usage error; if --since selects nothing, the exit code is 1.
    """
    from lakelog_lake.landing.export import to_file, to_table
    from lakelog_lake.landing.targets import TableSpec

    source = _source(
        store, store_id, corrupt, topics=topics, since_ms=since, system_topics=system_topics
    )
    options.check_topics(source.path, topics or ())
    if made in ("jsonl", "csv"):
        with output.progress("reading") as on_read:
            rows = to_file(source, Path(to), made, on_read)
    else:
        is_catalog = made == "iceberg" and to.startswith(CATALOG)
        place = to if is_catalog else f"{made}:{to}"
        spec = TableSpec(place, table, storage=options.pairs_of(storage), compression=compression)
        with _running(source.path, "processes", processes) as (run, _):
            rows = to_table(source, spec, run, _print_landed)
    output.write_result({"rows": rows}, f"{rows} rows", as_json=as_json)
    if not rows and (topics or since is not None):
        output.print_line("lakelog: no durable message of the store is selected", err=True)
        raise typer.Exit(exitcodes.FOUND)


@contextmanager
def _running(
    store: Path,
    name: options.EngineName,
    count: int | None,
    to: str = "",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    then: Callable[[], object] = nothing,
) -> Iterator[tuple[Engine, TableLocation | None]]:
    """Yield the engine, and the tables if only the engine can reach them; shows a bar meanwhile.

    :param then: called after each task
    """
    needs_spark = to.startswith(SPARK_CATALOG) or master is not None or bool(config)
    name = options.chosen(name, needs_spark=needs_spark)
    with output.progress("landing") as advance:
        bar = _LandingBar(store, advance, then)
        if name == "processes":
            from lakelog_lake.tasks import engines

            with engines.processes(count, bar.done) as run:
                yield bar.watched(run), None
        else:
            spark = provider(name)
            with spark.running(to, count, master, config or {}, bar.done) as (run, place):
                yield bar.watched(run), place


def _print_retry(error: TemporaryError, seconds: float) -> None:
    """Print one line on stderr."""
    output.print_line(f"lakelog: {error} (trying again in {seconds:.1f} s)", err=True)


def _print_landed(landed: Landed) -> None:
    """Print one line per pass on stderr."""
    what = f"{landed.rows} rows in {landed.files} files" if landed.won else "landed by another"
    dead = f", {landed.dead_letters} of them dead letters" if landed.dead_letters else ""
    damaged = f", {landed.damaged} damaged skipped" if landed.damaged else ""
    output.print_line(f"{landed.start} to {landed.end}: {what}{dead}{damaged}", err=True)


def _print_landed_json(landed: Landed) -> None:
    """Print one object per pass on stdout."""
    output.write_lines([{name: getattr(landed, name) for name in LandedRow.__annotations__}])
