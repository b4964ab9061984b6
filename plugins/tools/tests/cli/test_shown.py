"""No text of a message can control the terminal that shows it."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog_cli.shown import shown
from plugins.tools.tests.cli.conftest import Run


@given(st.text())
def test_what_is_shown_can_be_printed(text: str) -> None:
    assert shown(text).isprintable()
    assert shown(text) == text or not text.isprintable()


TOPIC: Final = "bad\u202etopic"


def test_control_characters_are_escaped(lakelog: Run) -> None:
    line = {"topic": TOPIC, "tags": "a\x07b", "keys": "\x1b[2J", "body": "b"}
    put = lakelog("put", "s", "unused", "--jsonl", "-", text=json.dumps(line))
    assert put.returncode == 0, put.stderr
    for command, *more in (("topics",), ("queues",), ("scan",), ("tail", TOPIC)):
        done = lakelog(command, "s", *more)
        assert done.returncode == 0, done.stderr
        assert "bad\\u202etopic" in done.stdout
        assert ("keys=\\x1b[2J" in done.stdout) == (command in ("scan", "tail"))
        assert done.stdout.replace("\t", "").replace("\n", "").isprintable()


def test_letters_that_the_terminal_lacks(
    lakelog: Run, program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lakelog("put", "s", "标签", "b").returncode == 0
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = program("topics", "s")
    assert (done.returncode, done.stdout) == (0, "\\u6807\\u7b7e\t1\t1\n")
