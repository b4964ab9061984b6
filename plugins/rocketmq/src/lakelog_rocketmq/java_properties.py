"""Java's properties format, as ``java.util.Properties.load`` reads it.

Comments start with ``#`` or ``!``. A key ends at ``=``, ``:`` or a blank. A line that ends with a
backslash continues in the next one, whose leading blanks are dropped. The bytes are Latin-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

from lakelog.errors import SettingsError

BLANKS: Final = " \t\f"
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_PARTS: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@attrs.frozen
class Property:
    """One key with its value.

    :ivar line: its first line in the file, counted from 1
    """

    key: str
    value: str
    line: int


def parse_properties(data: bytes, origin: str) -> dict[str, Property]:
    """All properties of a file; the last value wins if a key repeats.

    :param origin: the file, for errors
    Raises :class:`~lakelog.errors.SettingsError` for an incomplete Unicode escape.
    """
    found: dict[str, Property] = {}
    for number, line in _logical_lines(data.decode("latin-1")):
        parts = _PARTS.fullmatch(line)
        if parts is None:  # cannot happen: every line has two parts, possibly empty
            raise SettingsError(f"line {number} is not a property", source=origin)
        key, value = (_unescaped(part, number, origin) for part in parts.groups())
        found[key] = Property(key, value, number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined with their continuations, without comments, blank lines and leading blanks."""
    pending, first = "", 0
    for number, natural in enumerate(_LINE_ENDS.split(text), start=1):
        line = natural.lstrip(BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first if pending else number
        pending += line
        if _continues(line):
            pending = pending[:-1]
        else:
            yield first, pending
            pending = ""
    if pending:
        yield first, pending


def _continues(line: str) -> bool:
    """Whether a line ends with an unescaped backslash."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, line: int, origin: str) -> str:
    def one(match: re.Match[str]) -> str:
        code, char = match.groups()
        if code is None and char == "u":
            what = f"line {line}: \\u needs four hexadecimal digits"
            raise SettingsError(f"{what}; write \\\\ for a backslash", source=origin)
        return chr(int(code, 16)) if code else _NAMED.get(char, char)

    plain = _ESCAPE.sub(one, text)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
