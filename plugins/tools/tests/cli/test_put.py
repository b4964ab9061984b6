"""Messages that are put can be read; a refused put has one line of text and an exit code."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path

import pytest

from lakelog.errors import SettingsError
from lakelog.store.open import open_store
from lakelog_cli.options import assignment
from lakelog_doctor.rebuild import rebuild
from lakelog_doctor.recover import recover
from lakelog_doctor.repair import repair
from plugins.tools.tests.cli.conftest import Run


def test_init_makes_a_store_once(lakelog: Run, tmp_path: Path) -> None:
    first, second = lakelog("init", "new"), lakelog("init", "new")
    assert (first.returncode, first.stdout) == (0, "made an empty store: new\n")
    assert (second.returncode, second.stdout) == (0, "a store is there already: new\n")
    assert (tmp_path / "new" / "commitlog").is_dir()
    (tmp_path / "photo.jpg").touch()
    strange = lakelog("init", ".")
    assert strange.returncode == 3
    assert "photo.jpg" in strange.stderr
    assert {each.name for each in tmp_path.iterdir()} == {"photo.jpg", "new"}


def test_options_go_into_the_message(lakelog: Run) -> None:
    lakelog("put", "s", "t", "hi", "--tags", "T", "--keys", "k1 k2", "--property", "a=b=c")
    (line,) = lakelog("scan", "s", "--json").stdout.splitlines()
    read = json.loads(line)
    assert (read["topic"], read["body"]) == ("t", "hi")
    assert read["properties"] == {"TAGS": "T", "KEYS": "k1 k2", "a": "b=c"}


def test_each_line_of_stdin_is_a_message(lakelog: Run) -> None:
    done = lakelog("put", "s", "t", "--stdin", "--json", "--queue", 3, text="x\ny\n")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(row["status"], row["queue_id"], row["queue_offset"]) for row in rows]
    assert found == [("PUT_OK", 3, 0), ("PUT_OK", 3, 1)]


@pytest.mark.parametrize("source", ["-", "in.jsonl"])
def test_json_names_every_field_or_the_options_do(
    lakelog: Run, tmp_path: Path, source: str
) -> None:
    lines = '{"body": "one", "tags": "own"}\n\n{"topic": "u", "body_base64": "/w=="}\n'
    (tmp_path / "in.jsonl").write_text(lines)
    put = lakelog("put", "s", "t", "--jsonl", source, "--tags", "option", text=lines)
    assert put.returncode == 0, put.stderr
    first, second = map(json.loads, lakelog("scan", "s", "--json").stdout.splitlines())
    assert (first["topic"], first["body"], first["properties"]["TAGS"]) == ("t", "one", "own")
    assert (second["topic"], second["body_base64"]) == ("u", "/w==")
    assert second["properties"]["TAGS"] == "option"


def test_bad_json_is_refused_with_its_line(lakelog: Run) -> None:
    for line, code, said in (
        ("{", 2, "line 1: this is no JSON"),
        ("[1]", 2, "line 1: this is no JSON object"),
        ('{"nope": 1}', 2, "a message has no 'nope'"),
        ('{"body": 1}', 2, "its body is no text"),
        ('{"body_base64": "?"}', 2, "no base64"),
        ('{"body": "a", "body_base64": ""}', 2, "not both"),
        ('{"queue_id": "x"}', 2, "queue_id is 'x' (str); give a whole number"),
        ('{"queue_id": -1}', 4, "lakelog: MESSAGE_ILLEGAL"),
        ('{"flag": 1.5}', 2, "flag is 1.5 (float); give a whole number"),
        ('{"properties": [1]}', 2, "properties is [1] (list); give a mapping"),
    ):
        done = lakelog("put", "s", "t", "--jsonl", "-", text=line)
        assert (done.returncode, done.stdout) == (code, ""), line
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_refusals(lakelog: Run) -> None:
    """Further ones are among the mistakes of tests/cli/test_mistakes.py."""
    for args, code, said in (
        (["s", "t"], 2, "give BODY, or --stdin, or --jsonl"),
        (["s", "t", "a", "--stdin"], 2, "one of them"),
        (["s", "t", "a", "--property", "x"], 2, "is not K=V"),
        (["s", "", "a"], 4, "MESSAGE_ILLEGAL"),
        (["s", "t", "a", "--set", "mode=read"], 2, "this is no setting"),
        (["s", "t", "a", "--set", "writer=nope"], 2, "no writer 'nope' is installed"),
    ):
        done = lakelog("put", *args)
        assert (done.returncode, done.stdout) == (code, ""), args
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_no_argument_of_a_function_passes_for_a_setting() -> None:
    functions = (open_store, rebuild, recover, repair)
    for name in {name for each in functions for name in signature(each).parameters}:
        with pytest.raises(SettingsError, match="this is no setting"):
            assignment(f"{name}=1")
