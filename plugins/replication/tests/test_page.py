"""The page for operators names lines of the log that exist, and every status of a put."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from lakelog.results import PutStatus

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "core" / "docs" / "guides" / "replication.md"
SOURCES = (
    ROOT / "plugins/replication/src/lakelog_replication",
    ROOT / "core/src/lakelog/store",
    ROOT / "core/src/lakelog/log",
)
PLACE = "\0"
"""Stands for a value in a text."""


def texts() -> Iterator[str]:
    """All texts of the sources, with values replaced."""
    for folder in SOURCES:
        for file in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        str(each.value) if isinstance(each, ast.Constant) else PLACE
                        for each in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield re.sub(r"%[sd]", PLACE, node.value)


def shown() -> list[str]:
    """The lines in the first columns of the tables of log lines."""
    found = []
    for part in PAGE.read_text().split("\n## "):
        if part.startswith("Lines in the log"):
            for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE):
                found += re.findall(r"`([^`]+)`", row)
    return found


def pieces(line: str) -> list[str]:
    """The fixed pieces of a line, without values and the names of errors of the system."""
    line = re.sub(r"^the replica (?=\w)|^was refused: |\[Errno.*", "", line)
    return [each for each in re.split(r"\b[A-Z]\b|\.\.\.|\b20\b|\b28\b", line) if each.strip(" :")]


def test_lines_of_the_log_are_in_the_source() -> None:
    known = list(texts())
    for line in shown():
        pattern = ".*".join(re.escape(each.strip(" :")) for each in pieces(line))
        assert pattern
        assert any(re.search(pattern, text, re.DOTALL) for text in known), line
    assert len(shown()) > 20


def test_the_page_has_every_status() -> None:
    page = PAGE.read_text()
    about_copies = ("PUT_OK", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
    named = {*about_copies, "IN_SYNC_REPLICAS_NOT_ENOUGH", "SERVICE_NOT_AVAILABLE"}
    assert named <= {each.value for each in PutStatus}
    assert all(f"| `{each}` |" in page for each in named)
