"""Writes JSON to stdout, and files that a user names.

Escapes unprintable characters of untrusted text, so that it cannot control the terminal.

Prints rows as a table or as JSON, for every command that lists something.

On a terminal, a table with headings. Elsewhere one line per row, with fields separated by tabs, not
wrapped or cut. With ``--json``, one object per line with the same names.

Formats numbers for display: few digits and a unit.

A table that omits columns for which there is no room, because a truncated number is wrong.

A progress bar on stderr, if that is a terminal; otherwise nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
import typer
from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lakelog.errors import LakelogError
from lakelog.format.layout import COMMITLOG_DIR
from lakelog_cli import exitcodes
from lakelog_cli.schema import plain_value


def shown(text: str) -> str:
    r"""``text`` with control, format and unassigned characters written as escapes.

    >>> shown("a\tb"), shown("\x1b[2J"), shown("\u202etxt"), shown("标签")
    ('a\\tb', '\\x1b[2J', '\\u202etxt', '标签')
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class FileNotWritten(LakelogError):
    """A file that a user named cannot be written."""

    exit_code = exitcodes.NO_OUTPUT


def write_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line."""
    sys.stdout.writelines(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows)


def write_file(path: Path, text: str) -> None:
    """Write a whole file; on an error the former one stays. Raises :class:`FileNotWritten`.

    A device or a pipe is written to directly: a rename would replace it. A path in a store
    directory is refused: the file could replace a segment or the checkpoint.
    """
    target = Path(os.path.realpath(path))
    for store in target.parents:
        if (store / COMMITLOG_DIR).is_dir():
            raise FileNotWritten(
                f"{shown(str(path))} cannot be written: it is in the store {shown(str(store))}; "
                "name a file elsewhere"
            )
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text)
            return
        temporary.write_text(text)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise FileNotWritten(f"{shown(str(path))} cannot be written: {reason}") from None


def write_document(document: object) -> None:
    """Write one indented JSON document."""
    sys.stdout.write(f"{json.dumps(document, indent=2, default=plain_value)}\n")


NOTHING = "-"
"""Printed for a missing value."""


def write_rows(
    rows: Sequence[Mapping[str, Any]], *, as_json: bool, names: Sequence[str] = ()
) -> None:
    """Print ``rows``, which have the same names.

    :param names: headings to show if there is no row
    """
    if as_json:
        write_lines(rows)
        return
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        for row in rows:
            typer.echo("\t".join(map(_cell, row.values())))
    elif rows or names:
        console.print(_table(rows, names))


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, value in (rows[0] if rows else dict.fromkeys(names)).items():
        right = isinstance(value, int | float)
        table.add_column(name.replace("_", " "), justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    return table


def _cell(value: object) -> str:
    return NOTHING if value is None else shown(str(value))


_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_BARS: Final = " ▁▂▃▄▅▆▇█"


def size(count: float | None) -> str:
    """A size in bytes.

    >>> size(0), size(1023), size(1536), size(5 << 40), size(None)
    ('0 B', '1023 B', '1.5 KiB', '5.0 TiB', '-')
    """
    if count is None:
        return "-"
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count, unit = count / _STEP, unit + 1
    return f"{count:.0f} {_UNITS[0]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def blocks(values: Sequence[float]) -> str:
    """A line of bars, as high as each value is beside the largest.

    >>> blocks([0, 1, 4, 8]), blocks([0, 0])
    (' ▁▄█', '  ')
    """
    most = max(values, default=0)
    last = len(_BARS) - 1
    return "".join(
        _BARS[max(value > 0, round(value / most * last)) if most else 0] for value in values
    )


def milliseconds(count: float | None) -> str:
    """A duration.

    >>> milliseconds(0.25), milliseconds(1500), milliseconds(None)
    ('0.25 ms', '1.50 s', '-')
    """
    if count is None:
        return "-"
    return f"{count:.2f} ms" if count < 1000 else f"{count / 1000:.2f} s"


def span(seconds: float) -> str:
    """A longer duration in its two largest units.

    >>> span(59), span(3600), span(90061)
    ('59 s', '1 h 0 min', '1 d 1 h')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


_GAP: Final = 2


class Columns:
    """Rows of cells, fitted to the width at drawing time; the rightmost columns are omitted first.

    :param names: names of the columns; a name that ends with ``...`` has text that may be cut
    """

    def __init__(self, *names: str) -> None:
        self._names = [name.removesuffix("...") for name in names]
        self._may_be_cut = [name.endswith("...") for name in names]
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row with one cell per column."""
        self._rows.append([Text(each) if isinstance(each, str) else each for each in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Yield the columns that fit."""
        widths = self._widths(options.max_width)
        table = Table(box=None, pad_edge=False)
        for name, _ in zip(self._names, widths, strict=False):
            table.add_column(name, no_wrap=True)
        for row in self._rows:
            table.add_row(*map(_cut, row, widths))
        yield table

    def _widths(self, room: int) -> list[int]:
        """The widths of the columns that fit, at least one; text columns share the rest."""
        widths, left = list[int](), room
        for at in range(len(self._names)):
            least, most = self._needs(at)
            if widths and least > left:
                break
            widths.append(min(most, max(left, least)))
            left -= widths[-1] + _GAP
        return widths

    def _needs(self, at: int) -> tuple[int, int]:
        name = Text(self._names[at]).cell_len
        most = max([name, *(row[at].cell_len for row in self._rows)])
        return (name if self._may_be_cut[at] else most), most


def _cut(cell: Text, width: int) -> Text:
    cut = cell.copy()
    cut.truncate(width, overflow="ellipsis")
    return cut


class Advance(Protocol):
    """Called with the amount done, and the total once it is known."""

    def __call__(self, done: float, total: float | None = None) -> None:
        """Move the bar."""

    def phase(self, words: str) -> None:
        """Restart the bar at zero, with another description."""


@attrs.frozen
class _Bar:
    """The bar on the terminal."""

    bar: Progress
    task: TaskID

    def __call__(self, done: float, total: float | None = None) -> None:
        self.bar.update(self.task, completed=done, total=total)

    def phase(self, words: str) -> None:
        self.bar.reset(self.task, total=None, description=words)


@contextmanager
def progress(words: str, total: float | None = None, *, hidden: bool = False) -> Iterator[Advance]:
    """Show a bar while the block runs; without a total it only indicates activity."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=hidden or not console.is_terminal,
    ) as bar:
        yield _Bar(bar, bar.add_task(words, total=total))
