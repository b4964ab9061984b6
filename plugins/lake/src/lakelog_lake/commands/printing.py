"""Prints rows to stdout: a table on a terminal, else tab-separated lines; or JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

_CONTROL: Final = dict.fromkeys(range(32)) | {127: None}
NOTHING: Final = "-"
"""Printed for null."""


def write_rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> None:
    """Print rows with the same keys, under headings on a terminal.

    :param names: the columns, which are shown for an empty result as well
    """
    from rich.console import Console

    names = list(rows[0]) if names is None and rows else list(names or ())
    console = Console(markup=False, highlight=False)
    if console.is_terminal:
        console.print(_table(rows, names))
        return
    lines = ("\t".join(_cell(row[name]) for name in names) for row in rows)
    sys.stdout.writelines(f"{line}\n" for line in lines)


def write_json(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one object per line; bytes as UTF-8 text, or else as hexadecimal digits."""
    sys.stdout.writelines(
        json.dumps(row, default=plain, ensure_ascii=False, separators=(",", ":")) + "\n"
        for row in rows
    )


def plain(value: object) -> object:
    """Convert a value that JSON lacks to one that it has."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in names:
        right = bool(rows) and isinstance(rows[0][name], int | float)
        table.add_column(Text(name.replace("_", " ")), justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(_cell(row[name])) for name in names))
    return table


def _cell(value: object) -> str:
    """Format a value in one line, without control characters that could affect a terminal."""
    if value is None:
        return NOTHING
    if isinstance(value, list | tuple | dict):
        value = json.dumps(value, default=plain, ensure_ascii=False)
    shown = value if isinstance(value, str) else str(plain(value))
    return shown.replace("\n", " ").replace("\t", " ").translate(_CONTROL)
