"""Text as statements of SQL: what stands between semicolons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_COMMENT: Final = r"--[^\n]*|/\*.*?\*/"
_QUOTED: Final[Mapping[str, str]] = {
    "spark": r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|['"`]""",
    "duckdb": r"""'[^']*'|"[^"]*"|(\$\w*\$).*?\1|['"]|\$\w*\$""",
}
"""Texts and names, and what begins one and does not end it; doubled quotes make two of one."""
_OPENED: Final = ("'", '"', "`", "/*")


def statements(texts: Iterable[str], dialect: str = "spark") -> Iterator[str]:
    """What stands between semicolons that are in no quotes and no comment, as soon as it ends.

    :param dialect: ``spark`` or ``duckdb``: a backslash escapes in texts of the one only
    """
    token = re.compile(rf"{_QUOTED[dialect]}|{_COMMENT}|/\*|;", re.DOTALL)
    held = ""
    for text in texts:
        held += text
        start = 0
        for found in token.finditer(held):
            if found[0] in _OPENED or _is_tag(found[0]):
                break  # what ends it has not come yet
            if found[0] == ";":
                yield from _said(held[start : found.start()])
                start = found.end()
        held = held[start:]
    yield from _said(held)


def _is_tag(token: str) -> bool:
    return token.startswith("$") and token.count("$") == len("$$")


def _said(text: str) -> Iterator[str]:
    """Nothing where nothing but comments and blanks is there."""
    if re.sub(_COMMENT, "", text, flags=re.DOTALL).strip():
        yield text.strip()
