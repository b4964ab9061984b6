"""Prints rows as a table or as JSON, for every command that lists something.

On a terminal, a table with headings. Elsewhere one line per row, with fields separated by tabs, not
wrapped or cut. With ``--json``, one object per line with the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakelog_cli.output import write_lines
from lakelog_cli.shown import shown

NOTHING = "-"
"""Printed for a missing value."""


def write_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print ``rows``, which have the same names."""
    if as_json:
        write_lines(rows)
        return
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        for row in rows:
            typer.echo("\t".join(map(_cell, row.values())))
    elif rows:
        console.print(_table(rows))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, value in rows[0].items():
        right = isinstance(value, int)
        table.add_column(name.replace("_", " "), justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    return table


def _cell(value: object) -> str:
    return NOTHING if value is None else shown(str(value))
