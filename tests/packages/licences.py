"""The licences of what lakelog's distributions bring along; ``python -m tests.packages.licences``.

It writes the table in ``core/docs/reference/licences.md`` from the metadata of what is installed.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from tests.packages.environment import declared
from tests.packages.projects import BY_NAME, PROJECTS, ROOT, normal

PAGE: Final = ROOT / "core" / "docs" / "reference" / "licences.md"
_MARKS: Final = ("<!-- licences: written by python -m tests.packages.licences -->", "<!-- end -->")
_CLASSIFIER: Final = "License :: OSI Approved :: "
_COPYLEFT: Final = re.compile(r"GPL|MPL|Mozilla|EPL|Eclipse|CDDL", re.IGNORECASE)
UNKNOWN: Final = "unknown"


def licences() -> dict[str, tuple[str, set[str]]]:
    """By the name of a package: its licence, and the distributions of lakelog that bring it."""
    found: dict[str, tuple[str, set[str]]] = {}
    for project in PROJECTS:
        extras = ",".join(set(project.table.get("optional-dependencies", {})) - {"test"})
        for each in declared(f"{project.name}[{extras}]" if extras else project.name):
            name = normal(each.name)
            if name not in BY_NAME and name != "lakelog":
                found.setdefault(name, (licence_of(each), set()))[1].add(project.name)
    return found


def licence_of(package: Distribution) -> str:
    """The licence that a package states: an expression, a classifier, or a short text."""
    metadata = package.metadata
    if "License-Expression" in metadata:
        return str(metadata["License-Expression"])
    classifiers = metadata.get_all("Classifier") or []
    stated = [each[len(_CLASSIFIER) :] for each in classifiers if each.startswith(_CLASSIFIER)]
    if stated:
        return " or ".join(sorted(set(stated)))
    text = " ".join(metadata.get_all("License") or []).strip()
    return text.splitlines()[0] if text else UNKNOWN


def is_copyleft(licence: str) -> bool:
    """Whether a licence has conditions for changed or combined works."""
    return _COPYLEFT.search(licence) is not None


def table() -> str:
    """The table, by name."""
    lines = ["| package | licence | comes with |", "| --- | --- | --- |"]
    for name, (licence, owners) in sorted(licences().items()):
        text = f"**{licence}**" if is_copyleft(licence) else licence
        shown = ", ".join(sorted(owners)) if len(owners) < 5 else "most"
        lines.append(f"| {name} | {text} | {shown} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with the table of now."""
    start, end = (text.index(mark) for mark in _MARKS)
    return f"{text[: start + len(_MARKS[0])]}\n\n{table()}\n\n{text[end:]}"


def main(path: Path = PAGE) -> None:
    """Write the table anew."""
    path.write_text(page(path.read_text()))


if __name__ == "__main__":
    main()
