"""The table of planted faults, and the places where they are planted.

``table.toml`` has one table ``[[fault]]`` per fault, with these keys:

- ``name``: unique, in kebab case
- ``area``: one of :data:`AREAS`
- ``law``: the beginning of the law of durability in ARCHITECTURE.md that the fault breaks, if any
- ``file``: path of the source file from the root of the project
- ``function``: dotted name of the function or class in the file; ``""`` for the whole file
- ``text``, ``instead``: the text of the place, once in the function, and its replacement
- ``seen``: what a user sees of the fault
- ``test``: the test that finds it, as an argument of pytest
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = Path(__file__).with_name("table.toml")
AREAS: Final = (
    "append",
    "sync",
    "recovery",
    "queues",
    "index",
    "retention",
    "dispatch",
    "groups",
    "replication",
    "broker",
    "table-commits",
    "table-positions",
    "verify",
    "native",
    "commands",
)


class TableError(Exception):
    """An entry of the table does not fit the sources."""


@attrs.frozen
class Fault:
    """An entry of the table; the module describes the fields."""

    name: str
    area: str
    file: str
    function: str
    text: str
    instead: str
    seen: str
    test: str
    law: str = ""

    def planted(self, root: Path) -> str:
        """Return the content of the file with the fault.

        :raises TableError: if the place is not there, or occurs more than once
        """
        try:
            source = (root / self.file).read_text(encoding="utf-8")
        except OSError as error:
            raise TableError(f"{self.name}: {self.file}: {error.strerror}") from error
        first, end = self._bounds(source)
        part = source[first:end]
        found = part.count(self.text)
        if found != 1:
            where = f"{self.file}, {self.function or 'the file'}"
            raise TableError(f"{self.name}: its text occurs {found} times in {where}, not once")
        if self.text == self.instead:
            raise TableError(f"{self.name}: `instead` is equal to `text`")
        return source[:first] + part.replace(self.text, self.instead) + source[end:]

    def _bounds(self, source: str) -> tuple[int, int]:
        """Return where the function begins and ends in ``source``, in characters."""
        if not self.function:
            return 0, len(source)
        lines = source.splitlines(keepends=True)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        if self.file.endswith(".py"):
            found = _definition(ast.parse(source), self.function.split("."))
            if found is not None:
                decorators = [each.lineno for each in found.decorator_list]
                first = min([found.lineno, *decorators])
                return starts[first - 1], starts[found.end_lineno or len(lines)]
        else:  # Rust: from the line of the function to the line that closes it
            pattern = re.compile(rf"^(\s*)(?:pub(?:\([a-z]+\))? )?(?:unsafe )?fn {self.function}\b")
            for at, line in enumerate(lines):
                opened = pattern.match(line)
                if opened:
                    last = lines.index(f"{opened[1]}}}\n", at)
                    return starts[at], starts[last + 1]
        raise TableError(f"{self.name}: {self.file} has no function {self.function}")


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definition(tree: ast.AST, names: list[str]) -> _Definition | None:
    """Return the definition with a dotted name, or ``None``."""
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, _Definition) and each.name == names[0]:
            found = _definition(each, names[1:]) if names[1:] else each
        elif isinstance(each, _Definition):
            continue
        else:
            found = _definition(each, names)
        if found is not None:
            return found
    return None


def load(path: Path = TABLE) -> tuple[Fault, ...]:
    """Return the faults of the table, in its order.

    :raises TableError: if keys are missing or unknown, or a name occurs twice
    """
    table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    faults = []
    for entry in table["fault"]:
        try:
            fault = Fault(**entry)
        except TypeError as error:
            raise TableError(f"{entry.get('name', 'an entry without a name')}: {error}") from error
        if fault.area not in AREAS:
            raise TableError(f"{fault.name}: the area {fault.area!r} is none of {AREAS}")
        faults.append(fault)
    names = [each.name for each in faults]
    twice = {each for each in names if names.count(each) > 1}
    if twice:
        raise TableError(f"names that occur twice: {', '.join(sorted(twice))}")
    return tuple(faults)


def laws(root: Path = ROOT) -> tuple[str, ...]:
    """Return the laws of durability of ARCHITECTURE.md."""
    page = (root / "core/docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.partition("\n## Laws")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    return tuple(row for row in rows if row != "law" and not row.startswith("---"))
