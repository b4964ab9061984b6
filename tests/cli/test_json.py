"""Every command prints JSON with ``--json``, and nothing but what it was said to print."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from jsonschema import Draft202012Validator

import lakelog
from lakelog_cli.commands.man import Command, commands
from lakelog_cli.output import Printed
from lakelog_cli.schema import kind_schema, schema_of
from lakelog_testing import FakeReplicatedLog, ScriptedSlave
from lakelog_testing.samples import copy_store
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests import test_commands as adopting
from plugins.replication.tests.masters import eventually, serving
from plugins.replication.tests.replica import copies
from tests.support.commands import app, invoke

PROCESSES: Final = ("--engine", "processes")
WITHOUT: Final = {"metrics", "replicate", "serve", "work"}
"""They run until they are stopped, and have a log or another format: see json.md."""
COLUMNS: Final = "id bigint, name string not null", "id bigint, name string"
"""Of bodies: all have a name by the second."""


@cache
def described() -> dict[str, Command]:
    return {each.path: each for each in commands(typer.main.get_command(app()))}


def run(*words: object, code: int = 0) -> str:
    done = invoke(*words)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.stdout


def printed_by(path: str) -> Printed:
    printed = described()[path].printed
    assert printed is not None
    return printed


def judged(path: str, output: str) -> list[Any]:
    """Give the objects that a command has printed, once each is one of its kinds."""
    printed = printed_by(path)
    objects = (
        [json.loads(output)] if printed.is_document else [*map(json.loads, output.splitlines())]
    )
    judge = Draft202012Validator(schema_of(printed))
    for each in objects:
        fits = [
            kind.__name__
            for kind in printed.kinds
            if Draft202012Validator(kind_schema(kind)).is_valid(each)
        ]
        errors = [error.message for error in judge.iter_errors(each)]
        assert errors == [], (path, each)
        assert len(fits) == 1 or not printed.kinds, (path, fits)
    assert objects, path
    return objects


def check(path: str, *words: object, code: int = 0) -> list[Any]:
    return judged(path, run(*path.split(), *words, "--json", code=code))


def put(store: Path, count: int = 20) -> None:
    small = {"slots": 100, "entries": 400}
    with lakelog.open(store, segment_size_bytes=65536, hash_index=small) as opened:
        for number in range(count):
            body: dict[str, object] = {"id": number}
            body |= {"name": f"n{number}"} if number % 2 else {}
            text = json.dumps(body).encode()
            opened.put(lakelog.Message("orders", text, keys=f"k{number}", queue_id=number % 2))
        opened.put(lakelog.Message("other", b"\xff" * 300))
        opened.wait_dispatched()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    put(tmp_path / "store")
    return tmp_path / "store"


def test_every_command_has_the_option_and_says_what_it_prints() -> None:
    lacking = [
        path
        for path, each in described().items()
        if each.printed is None or not any("--json" in one.names for one in each.parameters)
    ]
    assert set(lacking) == WITHOUT


def test_each_kind_has_a_name_of_its_own_and_a_valid_schema() -> None:
    kinds = {kind for each in described().values() if each.printed for kind in each.printed.kinds}
    assert len({each.__name__ for each in kinds}) == len(kinds) > 40
    for each in kinds:
        Draft202012Validator.check_schema(kind_schema(each))


def test_messages(store: Path, tmp_path: Path) -> None:
    check("init", tmp_path / "new", "--set", "segment_size_bytes=65536")
    check("put", store, "orders", "a", "b", "--keys", "k")
    check("get", store, "orders", 0)
    check("query", store, "orders", "--key", "k1")
    check("tail", store, "other")
    assert any("body_base64" in each for each in check("scan", store))
    check("grep", "name", store)
    (counted,) = check("grep", "name", store, "--count")
    assert counted["messages"] == 10


def test_topics_and_groups(store: Path) -> None:
    check("topics", store)
    check("queues", store)
    check("topic create", store, "returns", "--queues", 4)
    assert {each["permission"] for each in check("topic list", store)} == {"rw", None}
    check("topic delete", store, "other")
    check("consume", store, "billing", "orders", "-n", 2)
    check("groups create", store, "billing")
    check("groups list", store)
    check("groups reset", store, "billing", "--to", "earliest")
    (forgotten,) = check("groups delete", store, "billing")
    assert forgotten["is_configured"]


def test_dead_letters(store: Path) -> None:
    with (
        lakelog.open(store) as opened,
        opened.subscribe("billing", "orders", start="earliest", max_attempts=1) as consumer,
    ):
        opened.wait_dispatched()
        (letter,) = consumer.poll(1)
        consumer.nack(letter, 0)
        consumer.poll(1)  # sets it aside
    check("dlq list", store, "billing")
    assert check("dlq resend", store, "billing") == [{"group": "billing", "messages": 1}]


def test_the_state(store: Path, tmp_path: Path) -> None:
    check("stats", store, "--plot")
    check("doctor", store)
    check("plugins", "--store", store)
    written = check("plugins new", "acme-pace", tmp_path / "pace", "--kind", "cleaner")
    assert all(Path(each["path"]).is_file() for each in written)
    check("config show", store)
    check("config schema")
    check("dump", store)
    check("man", tmp_path / "man1")
    check("completion", "bash")
    check("report", store, "-o", tmp_path / "page.html")
    with lakelog.open(store) as opened:
        opened.put(lakelog.Message("orders", b"x"))
        (view,) = check("top", store, "--interval", 0.1)
    assert {"rates", "members"} <= set(view)


def spoil(store: Path) -> None:
    """Change the body of the second message."""
    with lakelog.open(store, mode="read") as opened:
        at = [each.physical_offset for each in opened.scan()][1]
    with min((store / "commitlog").iterdir()).open("r+b") as file:
        file.seek(at + 88)
        file.write(b"!!!!")


def test_checks_and_care(store: Path) -> None:
    assert [each["kind"] for each in check("verify", store, "--all")] == ["summary"]
    shutil.rmtree(store / "index")
    assert {each["kind"] for each in check("verify", store, "--all", code=1)} == {
        "problem",
        "summary",
    }
    check("rebuild", store)
    spoil(store)
    assert {each["kind"] for each in check("verify", store, code=1)} == {"damage", "summary"}
    check("doctor", store, code=1)
    check("recover", store, "--full", code=1)
    check("repair", store, "--yes")
    os.truncate(min((store / "commitlog").iterdir()), 40_000)
    size = ("--set", "segment_size_bytes=65536")
    assert "segment" in {each["kind"] for each in check("verify", store, *size, code=1)}


def test_a_cleaning(tmp_path: Path) -> None:
    put(tmp_path / "store", 900)
    cleaner = ("--set", "cleaner=retention", "--set", "retention.max_segments=1")
    found = check("clean", tmp_path / "store", "--dry-run", *cleaner)
    assert [each["kind"] for each in found] == ["segment", "summary"]


def test_tables(store: Path, tmp_path: Path) -> None:
    to = ("--to", f"parquet:{tmp_path / 't'}")
    columns = [tmp_path / "first.ddl", tmp_path / "second.ddl"]
    for file, text in zip(columns, COLUMNS, strict=True):
        file.write_text(text)
    body = ("--body", f"orders=json:{columns[0]}")
    copy_store(store, tmp_path / "copy")
    check("dispatch", store, *to, "--once", *PROCESSES, *body)
    check("pins list", store)
    check("lake status", store, *to)
    check("lake reland", to[1], "--body", f"orders=json:{columns[1]}")
    put(store)
    check("dispatch", store, *to, "--once", *PROCESSES, *body)
    check("lake compact", to[1])
    check("lake expire", to[1], "--older-than", "0s")
    assert "summary" in {each["kind"] for each in check("lake verify", store, *to, *PROCESSES)}
    (pin,) = check("pins list", store)
    check("pins remove", store, pin["name"])
    check("export", store, "--to", tmp_path / "lines", "--format", "jsonl")
    check("sql", store, "select topic, count(*) n from messages group by topic")
    check("lake infer-schema", store, "--topic", "orders")
    lose_the_end(store, tmp_path / "copy")
    differing = check("lake verify", store, *to, *PROCESSES, code=1)
    assert {"queue", "difference", "summary"} <= {each["kind"] for each in differing}
    assert check("lake rewind", store, *to, code=1)[0]["is_done"] is False


def lose_the_end(store: Path, copy: Path) -> None:
    shutil.rmtree(store)
    copy_store(copy, store)


def test_replication(tmp_path: Path) -> None:
    log = FakeReplicatedLog(tmp_path / "commitlog")
    log.append(1000)
    with serving(log, tmp_path) as master:
        assert master.port is not None
        with ScriptedSlave(master.port) as slave:
            slave.report(1)
            slave.bytes_up_to(1000)
            eventually(lambda: run("replication", "status", tmp_path, "--json"))
            check("replication status", tmp_path)
    with adopting.broker(adopting.answered({"code": 0})) as (port, _):
        check("replication adopt", f"127.0.0.1:{port}", "--master", "10.0.0.1:10912")


def test_a_replica(tmp_path: Path) -> None:
    log, copy = copies.make_log(tmp_path / "master", 10), tmp_path / "copy"
    with (
        ScriptedMaster(log, segment_bytes=copies.SEGMENT) as master,
        copies.replica(copy, master.address) as opened,
    ):
        copies.until(lambda: opened.max_offset == len(log))
        check("replication status", copy)
        check("stats", copy)
    check("promote", copy)


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running = []

    def start(*words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "lakelog_cli.main", *map(str, words)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.communicate()


def test_a_broker(store: Path, started: Callable[..., subprocess.Popen[str]]) -> None:
    broker = started("broker", store, "--port", 0, "--json")
    assert broker.stdout is not None
    judged("broker", broker.stdout.readline())
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(60) == 0
