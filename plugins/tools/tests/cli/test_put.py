"""Messages that are put can be read; a refused put has one line of text and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugins.tools.tests.cli.conftest import Run


def test_init_makes_a_store_once(lakelog: Run, tmp_path: Path) -> None:
    first, second = lakelog("init", "new"), lakelog("init", "new")
    assert (first.returncode, first.stdout) == (0, "made an empty store: new\n")
    assert (second.returncode, second.stdout) == (0, "a store is there already: new\n")
    assert (tmp_path / "new" / "commitlog").is_dir()


def test_init_leaves_a_strange_directory_alone(lakelog: Run, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    done = lakelog("init", ".")
    assert done.returncode == 3
    assert "photo.jpg" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["photo.jpg"]


def test_options_go_into_the_message(lakelog: Run) -> None:
    lakelog("put", "s", "t", "hi", "--tags", "T", "--keys", "k1 k2", "--property", "a=b=c")
    (line,) = lakelog("scan", "s", "--json").stdout.splitlines()
    read = json.loads(line)
    assert (read["topic"], read["body"]) == ("t", "hi")
    assert read["properties"] == {"TAGS": "T", "KEYS": "k1 k2", "a": "b=c"}


def test_each_line_of_stdin_is_a_message(lakelog: Run) -> None:
    done = lakelog("put", "s", "t", "--stdin", "--json", "--queue", 3, text="x\ny\n")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["status"], row["queue_id"], row["queue_offset"]) for row in rows] == [
        ("PUT_OK", 3, 0),
        ("PUT_OK", 3, 1),
    ]


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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1: this is no JSON"),
        ("[1]", "line 1: this is no JSON object"),
        ('{"nope": 1}', "a message has no 'nope'"),
        ('{"body": 1}', "its body is no text"),
        ('{"body_base64": "?"}', "no base64"),
        ('{"body": "a", "body_base64": ""}', "not both"),
    ],
)
def test_bad_json_is_refused_with_its_line(lakelog: Run, line: str, said: str) -> None:
    done = lakelog("put", "s", "t", "--jsonl", "-", text=line)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ['{"queue_id": "x"}', '{"flag": 1.5}', '{"properties": [1]}'])
def test_a_field_of_the_wrong_type_is_a_refused_put(lakelog: Run, line: str) -> None:
    done = lakelog("put", "s", "t", "--jsonl", "-", text=line)
    assert done.returncode == 4
    assert done.stderr.startswith("lakelog: MESSAGE_ILLEGAL")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["s", "t"], 2, "give BODY, or --stdin, or --jsonl"),
        (["s", "t", "a", "--stdin"], 2, "one of them"),
        (["s", "t", "a", "--property", "x"], 2, "is not K=V"),
        (["s", "t", "--jsonl", "missing"], 2, "missing: cannot be read"),
        (["s", "", "a"], 4, "MESSAGE_ILLEGAL"),
        (["s", "t", "a", "--set", "x"], 2, "is not KEY=VALUE"),
        (["s", "t", "a", "--set", "mode=read"], 2, "this is no setting"),
        (["s", "t", "a", "--set", "flsh=none"], 2, "nearest known one is flush"),
        (["s", "t", "a", "--set", "writer=nope"], 2, "no writer 'nope' is installed"),
        (["s", "t", "a", "--settings", "missing.toml"], 2, "missing.toml"),
    ],
)
def test_refusals(lakelog: Run, args: list[str], code: int, said: str) -> None:
    done = lakelog("put", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
