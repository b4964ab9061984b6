"""``lakelog dump``: every record of the log as JSON, for comparing stores."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelog.cli.exitcodes import USAGE
from lakelog.cli.opening import open_for
from lakelog.cli.options import Assignments, BrokerConf, SettingsFile, StorePath
from lakelog.cli.output import write_lines
from lakelog.cli.recordlines import blank_line, record_lines
from lakelog.cli.walk import walk
from lakelog.codec.recordbatch import RecordBatch
from lakelog.pieces import Blank, Piece


def dump(
    store: StorePath,
    records: Annotated[
        bool, typer.Option("--records", help="Print the records; for now, always needed.")
    ] = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Print each record and each blank of the log as a line of JSON.

    A record that is damaged has no line: it is told on stderr, and those behind it follow.
    """
    if not records:
        typer.echo("lakelog: queues and keys come with a later version: give --records", err=True)
        raise typer.Exit(USAGE)
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        for piece in walk(opened):
            _write(piece)


def _write(piece: Piece) -> None:
    if isinstance(piece, RecordBatch):
        write_lines(record_lines(piece))
    elif isinstance(piece, Blank):
        write_lines([blank_line(piece)])
