"""A dispatcher to be killed, in a process of its own; see :func:`run`.

It ends when what was durable at its start has landed. Processes are forked from one that has
imported everything: starting Python and importing Iceberg's libraries took most of a round's time.

It tells who started it where it is, by a pipe: ``ready``; ``committing`` at the start of each
commit; and ``here`` when it comes to PHASE for the NUMBER-th time, where it stays, to be killed
from outside. Phases: ``planned``, ``written``, ``inside`` (of a commit, with metadata written that
nothing refers to yet, or has just begun to), ``shown one`` (Parquet: of the files of a commit, one
has its name), ``one committed`` (after the commit of one of several
tables), ``committed`` (after all, before anything else), ``ahead`` (before a commit, with the next
pass written) and ``ahead committed`` (right behind it), ``never``. Inside of a commit of Delta,
which is one call, nobody can stop. Modes: ``one`` table; ``topics``, a table for each; ``bodies``,
one table with dead letters; ``follow``, one table, until something is sent by the pipe;
``through``, one table until nothing is left, through trouble that may pass.
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs

import lakelog
from lakelog_lake.errors import TemporaryError
from lakelog_lake.landing.dispatcher import LandingDispatcher
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.passes import sink_for
from plugins.lake.tests.landing.table_specs import Even, dispatcher, per_topic

BOUNDS = TaskLimits(pass_bytes=96 << 10, task_bytes=48 << 10)


@attrs.define
class Reporter:
    """Says where the dispatcher is; see the module."""

    say: Callable[[str], None]
    phase: str
    left: int = 1

    def __call__(self, phase: str) -> None:
        if phase == self.phase:
            self.left -= 1
            if self.left == 0:
                self.say("here")
                while True:
                    signal.pause()


def report_commits(kind: str, reporter: Reporter) -> None:
    """See to it that ``reporter`` hears of the start and of the middle of each commit."""
    if kind in {"iceberg", "catalog"}:
        from pyiceberg.catalog import MetastoreCatalog

        from lakelog_lake.sinks.iceberg import IcebergSink

        _around(IcebergSink, "commit", before=lambda: reporter.say("committing"))
        written = _around(MetastoreCatalog, "_write_metadata", after=lambda: reporter("inside"))
        catalog: Any = MetastoreCatalog  # to give it another method
        catalog._write_metadata = staticmethod(written)
    elif kind == "parquet":
        from lakelog_lake.sinks.parquet import ParquetSink

        _around(ParquetSink, "commit", before=lambda: reporter.say("committing"))
        when = random.choice(["before", "after"])
        _around(os, "link", **{when: lambda: reporter("inside")})
        _around(Path, "rename", after=lambda: reporter("shown one"))
    else:
        from lakelog_lake.sinks.delta import DeltaSink

        _around(DeltaSink, "commit", before=lambda: reporter.say("committing"))


def report_ahead(kind: str, lander: LandingDispatcher, reporter: Reporter) -> None:
    """See to it that each commit waits until the next pass is written, and is then told of."""
    is_ahead = False

    def before() -> None:
        nonlocal is_ahead
        is_ahead = lander._ahead is not None and bool(lander._ahead.written())
        if is_ahead:
            reporter("ahead")

    def on_phase(phase: str) -> None:
        if phase == "committed" and is_ahead:
            reporter("ahead committed")

    sink: Any = type(sink_for(f"{kind}:/nowhere"))
    _around(sink, "commit", before=before)
    lander.on_phase = on_phase


def _nothing() -> None:
    pass


def _around(
    owner: Any,
    name: str,
    before: Callable[[], None] = _nothing,
    after: Callable[[], None] = _nothing,
) -> Callable[..., Any]:
    inner: Callable[..., Any] = getattr(owner, name)

    def wrapped(*given: Any, **named: Any) -> Any:
        before()
        result = inner(*given, **named)
        after()
        return result

    setattr(owner, name, wrapped)
    return wrapped


def spec(kind: str, table: Path | str, mode: str) -> TableSpec:
    if mode == "topics":
        return per_topic(kind, Path(table))
    return TableSpec(f"{kind}:{table}", parsers={"*": Even()} if mode == "bodies" else {})


@attrs.frozen
class Orders:
    """What to do; see the module.

    :ivar table: a path, or what else is behind the kind
    :ivar name: of the table in a catalog
    :ivar storage: of an object store or a catalog
    """

    store: Path
    kind: str
    table: Path | str
    phase: str = "never"
    number: int = 1
    mode: str = "one"
    name: str | None = None
    storage: Mapping[str, str] = attrs.field(factory=dict)


def run(orders: Orders, pipe: Connection, errors: Path) -> None:
    """Do ``orders``; what goes wrong is written to ``errors``."""
    try:
        _run(orders, pipe)
    except Exception:
        errors.write_text(traceback.format_exc())
        raise


def _run(orders: Orders, pipe: Connection) -> None:
    reporter = Reporter(pipe.send, orders.phase, orders.number)
    wanted = spec(orders.kind, orders.table, orders.mode)
    if orders.storage:
        wanted = attrs.evolve(wanted, table=orders.name, storage=orders.storage)
    source = LandingSource(orders.store, "S")
    if orders.mode == "through":
        pipe.send("ready")
        pipe.send(through(lambda: dispatcher(source, wanted, BOUNDS)))
        return
    lander = dispatcher(source, wanted, BOUNDS, reporter)
    if orders.mode == "follow":
        pipe.send("ready")
        pipe.send(_follow(lander, pipe))
        return
    if orders.phase.startswith("ahead"):
        report_ahead(orders.kind, lander, reporter)
    else:
        report_commits(orders.kind, reporter)
    pipe.send("ready")
    with lakelog.open(orders.store, mode="read") as opened:
        end = opened.flushed_offset
    landed = lander.one_pass()
    while landed is not None and landed.end < end:
        landed = lander.one_pass()


def _follow(lander: Any, pipe: Connection) -> Counter[str]:
    """How many passes landed their range, and how many found it landed by somebody else."""
    passes: Counter[str] = Counter()
    while not pipe.poll():
        landed = lander.one_pass()
        if landed is None:
            time.sleep(0.01)
        else:
            passes["won" if landed.won else "lost"] += 1
    return passes


def through(start: Callable[[], LandingDispatcher]) -> Counter[str]:
    """Go on after trouble that may pass, or start again; how often each kind of it came."""
    trouble: Counter[str] = Counter()
    lander: LandingDispatcher | None = None
    while True:
        try:
            lander = lander or start()
            if lander.one_pass() is None:
                return trouble
        except TemporaryError as error:
            trouble[type(error).__name__] += 1
            lander = random.choice([lander, None])
