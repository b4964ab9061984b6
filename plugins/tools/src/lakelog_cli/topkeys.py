"""The keys of ``lakelog top``: the order of its tables, a filter by name, and the end."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from lakelog_cli.shown import shown

QUIT: Final = "q"
_ESCAPE: Final = "\x1b"
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[\d;]*[A-Za-z~]|O[A-Za-z])")
"""The escape sequences of arrows and similar keys."""
_ERASING: Final = ("\x7f", "\b")
_NAME: Final = "name"
_COLUMNS: Final = {"lag": "behind", "cpu": "cpu_percent", "memory": "rss_bytes"}
ORDERS: Final = ("as listed", _NAME, *_COLUMNS)
"""Names go from the least on, numbers from the largest on."""
_NAMES: Final = {"groups": ("group", "topic"), "processes": ("name",), "members": ("name",)}
"""The tables with rows to arrange, and the columns that name a row."""

View = Mapping[str, Any]


@attrs.define
class Controls:
    """The choices of the user so far.

    :ivar order: one of ``ORDERS``
    :ivar text: only rows with it in a name are shown, whatever the case of letters
    :ivar is_typing: whether keys belong to ``text``
    :ivar is_done: whether to end
    """

    order: str = ORDERS[0]
    text: str = ""
    is_typing: bool = False
    is_done: bool = False

    def press(self, keys: str) -> None:
        """Handle the keys typed since the last call; keys such as arrows are ignored."""
        for key in _SEQUENCE.sub("", keys):
            if self.is_typing:
                self._type(key)
            else:
                self._choose(key)

    def _type(self, key: str) -> None:
        if key in "\r\n":
            self.is_typing = False
        elif key == _ESCAPE:
            self.is_typing, self.text = False, ""
        elif key in _ERASING:
            self.text = self.text[:-1]
        elif key.isprintable():
            self.text += key

    def _choose(self, key: str) -> None:
        if key == QUIT:
            self.is_done = True
        elif key == "s":
            self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        elif key == "/":
            self.is_typing, self.text = True, ""
        elif key == _ESCAPE:
            self.text = ""

    @property
    def line(self) -> str:
        """The keys, and the present choices."""
        text = f"{shown(self.text)}_" if self.is_typing else shown(self.text) or "none"
        return f"s order: {self.order}   / filter: {text}   q quit"

    def arranged(self, view: View) -> View:
        """The view with its rows in this order, and without those that the filter leaves out."""
        tables = {name: view[name] for name in _NAMES if isinstance(view.get(name), Sequence)}
        return {**view, **{name: self._rows(rows, _NAMES[name]) for name, rows in tables.items()}}

    def _rows(self, rows: Sequence[View], names: Sequence[str]) -> list[View]:
        text = self.text.casefold()
        kept = [row for row in rows if any(text in row[name].casefold() for name in names)]
        if self.order == _NAME:
            return sorted(kept, key=lambda row: [row[name] for name in names])
        column = _COLUMNS.get(self.order)
        if column is None or not any(column in row for row in kept):
            return kept
        return sorted(kept, key=lambda row: -(row.get(column) or 0))


@contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a number of seconds, and returns the keys typed meanwhile.

    If standard input is no terminal, it only waits. The terminal is restored afterwards.
    """
    if not sys.stdin.isatty():
        yield _without_keys
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    former = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield lambda seconds: _typed(terminal, seconds)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, former)


def _without_keys(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _typed(terminal: int, seconds: float) -> str:
    if not select.select([terminal], [], [], seconds)[0]:
        return ""
    try:
        data = os.read(terminal, 256)
    except OSError:  # the terminal is gone
        return QUIT
    return data.decode(errors="ignore") if data else QUIT
