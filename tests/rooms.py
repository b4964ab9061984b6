"""The rooms of lakelog-core as ``core/rooms.toml`` lists them, and as they are on the disk.

``python -m tests.rooms`` writes the table of rooms in ``core/docs/ARCHITECTURE.md``.
"""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
CORE: Final = ROOT / "core" / "src" / "lakelog"
PAGE: Final = ROOT / "core" / "docs" / "ARCHITECTURE.md"
PLAN: Final[dict[str, Any]] = tomllib.loads((ROOT / "core" / "rooms.toml").read_text())
ROOMS: Final[list[dict[str, str]]] = PLAN["room"]
BEGIN: Final = "<!-- rooms: written by python -m tests.rooms -->\n"
END: Final = "<!-- end of rooms -->\n"
_NO_CODE: Final = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
)
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def modules(folder: Path) -> list[str]:
    """The modules right in a folder, by name."""
    return sorted(each.stem for each in folder.glob("*.py") if each.stem != "__init__")


def table() -> str:
    """The table of rooms as ARCHITECTURE.md has it."""
    rows = ["| room | modules | duty |", "| --- | --- | --- |"]
    rows += [f"| `{each['name']}` | {_listed(each['name'])} | {each['role']} |" for each in ROOMS]
    return "\n".join(rows) + "\n"


def _listed(room: str) -> str:
    folder = CORE / room
    parts = [" ".join(f"`{each}`" for each in modules(folder))]
    inner = sorted(each for each in folder.glob("*/") if each.name != "__pycache__")
    parts += [f"{each.name}: {' '.join(f'`{name}`' for name in modules(each))}" for each in inner]
    return "; ".join(filter(None, parts))


def page() -> str:
    """ARCHITECTURE.md with the table as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def code_lines(file: Path) -> int:
    """Lines of a file without blank lines, comments and docstrings."""
    source = file.read_text()
    found = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found.difference(*_docstrings(source)))


def _docstrings(source: str) -> Iterator[range]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            yield range(text.lineno, (text.end_lineno or text.lineno) + 1)


if __name__ == "__main__":
    PAGE.write_text(page())
