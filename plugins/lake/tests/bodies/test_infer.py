"""A schema out of bodies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lakelog import Message
from lakelog_lake.bodies import parser_for
from lakelog_lake.bodies.infer import infer
from lakelog_lake.commands.infer import infer_schema
from plugins.lake.tests.bodies.parsing import rows_of
from plugins.lake.tests.stores import open_small


def test_types_are_those_that_fit_all() -> None:
    found = infer(
        [
            b'{"id": 1, "x": 1, "big": 1, "n": null, "odd": 1, "o": {}, "l": [], "ok": true}',
            b'{"x": 1.5, "big": 9223372036854775808, "odd": "1", "l": [{"a": null}, {"a": "x"}]}',
            b"no JSON",
            b"[1]",
        ]
    )
    assert found.schema["properties"] == {
        "id": {"type": "integer"},
        "x": {"type": "number"},
        "big": {"type": "number"},
        "l": {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
        "ok": {"type": "boolean"},
    }
    assert found.left_out == (
        "/n: always null",
        "/odd: integer or string",
        "/o: nothing in it has a type",
    )
    assert (found.read, found.others) == (2, 2)


def test_text_that_is_a_time_everywhere_is_one() -> None:
    bodies = [b'{"a": "2026-01-02T03:04:05Z", "d": "2026-01-02", "s": "2026-01-02"}', b'{"s": "x"}']
    plain = {"type": "string"}
    assert list(infer(bodies, times=False).schema["properties"].values()) == [plain] * 3
    assert infer(bodies).schema["properties"] == {
        "a": {"type": "string", "format": "date-time"},
        "d": {"type": "string", "format": "date"},
        "s": plain,
    }


@pytest.mark.parametrize(
    ("bodies", "why"),
    [
        ([], "none of 0 bodies"),
        ([b"x", b"{}"], "none of 2 bodies"),
        ([json.dumps({str(n): n for n in range(2000)}).encode()], "more than 1000 fields"),
    ],
)
def test_bodies_without_a_schema(bodies: list[bytes], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        infer(bodies)


def test_the_command_prints_what_json_reads(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        for number in range(20):
            body = json.dumps({"number": number, f"of-{number % 2}": None if number < 9 else "x"})
            store.put(Message("events", body.encode(), queue_id=number % 3))
    app = typer.Typer()
    app.command()(infer_schema)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [str(tmp_path / "store"), "--topic", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    (tmp_path / "schema.json").write_text(run("events"))
    parser = parser_for(f"json:{tmp_path / 'schema.json'}")
    assert parser.fields.names == ["number", "of_0", "of_1"]
    assert rows_of(parser, b'{"number": 5, "of-1": "y"}') == [
        {"number": 5, "of_0": None, "of_1": "y"}
    ]
    assert set(json.loads(run("events", "--messages", "5"))["properties"]) == {"number"}
    failed = CliRunner().invoke(app, [str(tmp_path / "store"), "--topic", "none"])
    assert "none of 0 bodies" in str(failed.exception)
