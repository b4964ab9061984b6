"""``lakelog dump``: everything in a store as JSON, for comparing stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from lakelog import Store
from lakelog.log.reading.pieces import Blank, Piece
from lakelog_cli.dumplines import KeysSeen, message_lines, query_line, queue_line, store_line
from lakelog_cli.exitcodes import FOUND
from lakelog_cli.opening import open_for
from lakelog_cli.options import AlwaysJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.output import write_lines
from lakelog_cli.printed import prints
from lakelog_cli.recordlines import Row, blank_line, record_lines
from lakelog_cli.rows.dumped import (
    BlankLine,
    MessageLine,
    QueryLine,
    QueueLine,
    RecordLine,
    StoreLine,
)
from lakelog_cli.shown import shown
from lakelog_cli.walk import DamageCounter, walk
from lakelog_format.codec.record_batch import RecordBatch


@prints(StoreLine, QueueLine, MessageLine, RecordLine, BlankLine, QueryLine, is_always=True)
def dump(
    store: StorePath,
    records: Annotated[
        bool, typer.Option("--records", help="Print only the records and blanks of the log.")
    ] = False,
    _as_json: AlwaysJson = True,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Print the store, its queues, their messages, the log, and all keys, as lines of JSON.

    Damage has no line: it is reported on stderr, the records behind it follow, and the exit code is
    1. If the store is written to meanwhile, later lines may be newer than earlier ones.
    """
    damages = DamageCounter()
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        write_lines(_log(opened, None, damages) if records else _everything(opened, damages))
    if damages.count:
        raise typer.Exit(FOUND)


def _everything(store: Store, damages: DamageCounter) -> Iterator[Row]:
    queues = store.queues()
    rows = [queue_line(store, queue) for queue in queues]
    yield store_line(store, rows)
    yield from rows
    problems: list[str] = []
    for queue in queues:
        yield from message_lines(store, queue, problems)
    for problem in problems:
        typer.echo(f"damaged: {shown(problem)}", err=True)
    damages.count += len(problems)
    keys = KeysSeen()
    yield from _log(store, keys, damages)
    yield from (query_line(store, topic, key) for topic, key in keys)


def _log(store: Store, keys: KeysSeen | None, damages: DamageCounter) -> Iterator[Row]:
    for piece in walk(store, damages):
        yield from _lines(piece)
        if keys is not None and isinstance(piece, RecordBatch):
            keys.add(piece)


def _lines(piece: Piece) -> Iterator[Row]:
    if isinstance(piece, RecordBatch):
        yield from record_lines(piece)
    elif isinstance(piece, Blank):
        yield blank_line(piece)
