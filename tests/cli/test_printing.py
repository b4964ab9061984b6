"""Every command prints text of messages so that it cannot control a terminal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import lakelog
from tests.support.commands import invoke

BAD: Final = "x\x1b[2J\x9b2J\u202etxt\x07\u2066\x85y"
"""Escape sequences of one byte and of two, orders of text that mislead, a bell, a line's end."""
CONTROL: Final = re.compile(r"[^\t\n -~\xa0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069\u2028\u2029]")
COMMANDS: Final = [
    "scan S",
    "scan S --json",
    "get S orders 0",
    "get S orders 0 --json",
    "query S orders --key k",
    "query S orders --key k --json",
    "tail S orders",
    "grep -e . S",
    "dump S",
    "consume S readers orders",
    "consume S others orders --json",
    "dlq list S members",
    "dlq list S members --json",
    "sql S --option system_topics=true --engine duckdb",
    "sql S --option system_topics=true --engine duckdb --json",
    "topics S",
    "queues S",
    "topic S",
    "groups S",
    "stats S --plot",
    "doctor S",
    "verify S --all",
    "config show S",
    "pins S",
    "put S orders b --property p=BAD",
]
SQL: Final = 'select tags, properties, keys, body as "BAD", cast(body as text) from messages'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose messages have control characters wherever text may have them."""
    path = tmp_path / f"s{BAD}"
    hash_index = {"slots": 100, "entries": 400}
    with lakelog.open(path, segment_size_bytes="4MiB", hash_index=hash_index) as made:
        dead = "%DLQ%members"
        for topic in ("orders", dead):
            keys = ["k", BAD]
            properties = {"p": BAD, f"n{BAD}": "v"}
            made.put(
                lakelog.Message(
                    topic, BAD.encode(), tags=BAD, keys=keys, properties=properties, queue_id=0
                )
            )
        made.wait_dispatched()
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_no_control_character(store: Path, command: str) -> None:
    words = [str(store) if each == "S" else each.replace("BAD", BAD) for each in command.split()]
    if words[0] == "sql":
        words.append(SQL.replace("BAD", BAD))
    done = invoke(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout or command.startswith(("pins", "groups"))
    assert CONTROL.findall(done.output) == []


def test_csv_is_cleaned_only_for_a_terminal(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("sql", store, SQL, "--engine", "duckdb", "--csv")
    assert BAD in invoke(*words).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")  # every stream counts as a terminal
    found = invoke(*words).stdout
    assert "\\x1b[2J" in found
    assert CONTROL.findall(found) == []


def test_an_error_is_one_clean_line(store: Path) -> None:
    for words in (("get", store, BAD, "0"), ("query", store, BAD, "--key", BAD), ("get", BAD, "t")):
        done = invoke(*words)
        assert done.exit_code != 0
        assert CONTROL.findall(done.output) == []


def _printing(path: Path) -> Iterator[str]:
    """Calls that print without the cleaner."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"typer.echo", "print"}:
            yield f"{path}:{node.lineno}"


def test_all_commands_print_by_one_printer() -> None:
    sources = Path(__file__).parents[2].glob("*/*/src/*/")
    modules = [
        each
        for folder in sources
        for each in folder.rglob("*.py")
        if "import typer" in each.read_text() or folder.name == "lakelog_cli"
    ]
    assert len(modules) > 40
    printer = Path("lakelog_cli", "output.py")
    found = [
        place for each in modules if not each.match(f"*/{printer}") for place in _printing(each)
    ]
    assert found == []
