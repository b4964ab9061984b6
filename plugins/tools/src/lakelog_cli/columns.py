"""A table that omits columns for which there is no room, because a truncated number is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

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
