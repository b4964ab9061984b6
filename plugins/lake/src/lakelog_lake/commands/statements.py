"""Splits SQL text into statements at semicolons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_COMMENT: Final = r"--[^\n]*|/\*.*?\*/"
_QUOTED: Final[Mapping[str, str]] = {
    "spark": r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|['"`]""",
    "duckdb": r"""'[^']*'|"[^"]*"|(\$\w*\$).*?\1|['"]|\$\w*\$""",
}
"""Literals, quoted names and comments, complete or still open; a doubled quote splits a literal."""
_OPENED: Final = ("'", '"', "`", "/*")


def statements(texts: Iterable[str], dialect: str = "spark") -> Iterator[str]:
    """Yield each statement as soon as its semicolon, outside of quotes and comments, is read.

    :param dialect: ``spark`` or ``duckdb``: only Spark has backslash escapes in literals
    """
    token = re.compile(rf"{_QUOTED[dialect]}|{_COMMENT}|/\*|;", re.DOTALL)
    held = ""
    for text in texts:
        held += text
        start = 0
        for found in token.finditer(held):
            if found[0] in _OPENED or _is_tag(found[0]):
                break  # wait for its end
            if found[0] == ";":
                yield from _unless_blank(held[start : found.start()])
                start = found.end()
        held = held[start:]
    yield from _unless_blank(held)


def _is_tag(token: str) -> bool:
    return token.startswith("$") and token.count("$") == len("$$")


def _unless_blank(text: str) -> Iterator[str]:
    """Yield the statement unless it has only comments and blanks."""
    if re.sub(_COMMENT, "", text, flags=re.DOTALL).strip():
        yield text.strip()
