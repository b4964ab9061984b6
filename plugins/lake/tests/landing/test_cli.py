"""The commands, as a shell runs them."""

from __future__ import annotations

import base64
import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import lakelog
from lakelog import Message
from lakelog.errors import SettingsError
from lakelog_cli.app import make_app
from lakelog_lake import plugin
from lakelog_lake.commands.options import chosen
from lakelog_lake.landing import dispatcher
from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher
from plugins.lake.tests.landing.table_specs import per_topic, read_topic
from plugins.lake.tests.landing.tables import (
    KEY,
    SinkTable,
    any_kind,
    assert_exactly,
    keys_in,
    keys_of,
    make,
    read,
)
from plugins.lake.tests.stores import damaged, filled, messages, open_small
from tests.support.waiting import until

_LONGEST_SECONDS = 60
LAKELOG = str(Path(sys.executable).with_name("lakelog"))
PROCESSES = ("--engine", "processes")
"""Without it dispatch starts Spark where that is installed, which takes seconds."""


def run(*arguments: object, plugins: Sequence[Any] = (plugin,)) -> Result:
    """A command in this process; ``dispatch`` by processes unless an engine is named."""
    if arguments[0] == "dispatch" and "--engine" not in arguments:
        arguments = (*arguments, *PROCESSES)
    app = make_app()
    for each in plugins:
        each.lakelog_cli_commands(app)
    return CliRunner().invoke(app, list(map(str, arguments)))


def identity(store: Path) -> str:
    return str(json.loads((store / "lakelog" / "store.json").read_text())["uuid"])


@any_kind
def test_dispatch_once_lands_all(kind: str, store_path: Path, tmp_path: Path) -> None:
    """The first time as a shell runs it: the commands are found where the package is installed."""
    arguments = ("dispatch", str(store_path), "--to", f"{kind}:{tmp_path / 't'}", "--once")
    command = [LAKELOG, *arguments, *PROCESSES]
    subprocess.run(command, check=True, capture_output=True, timeout=_LONGEST_SECONDS)
    again = run(*arguments)
    assert again.exit_code == 0
    assert again.stderr == ""
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, identity(store_path)))


def test_dispatch_goes_on_until_it_is_told_to_stop(tmp_path: Path) -> None:
    store, table = tmp_path / "s", tmp_path / "t"
    command = [LAKELOG, "dispatch", str(store), "--to", f"parquet:{table}", "--interval-ms", "20"]
    command += PROCESSES
    with open_small(store, flush="inline") as owner:
        make("parquet", table)
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            owner.put_batch(list(messages(40)))
            _until_rows(table, 40)
            owner.put_batch(list(messages(10)))
            _until_rows(table, 50)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=_LONGEST_SECONDS)
    assert process.returncode == 0, errors
    assert_exactly("parquet", table, keys_of(store, identity(store)))


def test_dispatch_once_that_is_stopped_has_an_exit_code_of_its_own(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = LandingDispatcher.one_pass
    stopped: list[Landed | None] = []

    def one_pass(lander: LandingDispatcher) -> Landed | None:
        if not stopped:
            os.kill(os.getpid(), signal.SIGTERM)
        stopped.append(inner(lander))
        return stopped[-1]

    monkeypatch.setattr(LandingDispatcher, "one_pass", one_pass)
    monkeypatch.setattr(dispatcher, "soon", lambda act: act())  # not by a thread that may be late
    arguments = ("dispatch", store_path, "--to", f"parquet:{tmp_path / 't'}")
    done = run(*arguments, "--once")
    assert done.exit_code == 130
    assert "stopped before everything had landed" in done.stderr
    assert len(stopped) == 1
    stopped.clear()
    assert run(*arguments).exit_code == 0  # that goes on for ever, so a stop is its proper end


def _until_rows(table: Path, count: int) -> None:
    until(lambda: read("parquet", table).num_rows >= count, seconds=_LONGEST_SECONDS)


_POOL = """
import os, time
from lakelog_lake.tasks import engines
with engines.pool(2) as workers:
    print(workers.submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


def test_processes_of_the_pool_end_with_a_killed_dispatcher() -> None:
    command = [sys.executable, "-c", _POOL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert _is_alive(worker)
        process.kill()
    until(lambda: not _is_alive(worker), seconds=_LONGEST_SECONDS)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_wrong_usage_is_one_line_and_makes_no_table(store_path: Path, tmp_path: Path) -> None:
    new = tmp_path / "t"
    for arguments, words in {
        ("--to", "nowhere"): "is not KIND:PATH",
        ("--to", "hudi:/x"): "is not KIND:PATH",
        ("--to", "parquet:/x", "--partition", "week"): "some of topic, day, hour, store",
        ("--to", "parquet:/x", "--partition", ","): "some of topic, day, hour, store",
        ("--to", f"delta:{new}", "--history=banana"): "'banana' is not a history: write a number",
        ("--to", f"delta:{new}", "--history=-3"): "'-3' is not a history: write a number",
        ("--to", f"parquet:{new}", "--history", "5"): "keeps its history until",
        ("--to", "parquet:/x", "--store-id", ""): "is not a name of a store",
        ("--to", "parquet:/x/{topic}/y"): "in its last part",
        ("--to", "parquet:/x", "--body", "json"): "is not TOPIC=FORMAT",
        ("--to", "parquet:/x", "--dead-letters", "/y/{topic}"): "must be another table",
        ("--to", f"delta:{tmp_path / 'd'}", "--table", "a.b"): "has no name",
        ("--to", f"iceberg:{tmp_path / 'i'}", "--table", "flat"): "is not NAMESPACE.TABLE",
    }.items():
        done = run("dispatch", store_path, *arguments, "--once")
        assert done.exit_code == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not new.exists()


@any_kind
def test_a_store_that_is_another_is_refused_in_one_line(
    table: SinkTable, store_path: Path, tmp_path: Path
) -> None:
    to = ("--to", table.to, "--once", "--store-id", "S")
    assert run("dispatch", store_path, *to).exit_code == 0
    done = run("dispatch", filled(tmp_path / "other", 100), *to)
    assert done.exit_code == 2
    assert f"{tmp_path / 'other'} is not the log whose rows" in done.stderr
    assert "no whole record is there" in done.stderr
    assert "--store-id" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    table.assert_exactly(keys_of(store_path, "S"))


@any_kind
def test_dispatch_to_a_table_for_each_topic(kind: str, store_path: Path, tmp_path: Path) -> None:
    spec = per_topic(kind, tmp_path / "t")
    table = () if spec.table is None else ("--table", spec.table)
    more = ("--partition", "day", "--file-mib", "1", "--body", "topic-1=string", "--once")
    with open_small(store_path) as store:
        store.put(Message("topic-1", b"\xff"))
    done = run("dispatch", store_path, "--to", spec.to, *table, *more, "--store-id", "S")
    assert done.exit_code == 0, done.stderr
    assert "of them dead letters" in done.stderr
    found = [read_topic(kind, tmp_path / "t", f"topic-{n}") for n in range(3)]
    dead = read_topic(kind, tmp_path / "t", "topic-1", "_dead_letters")
    assert keys_in(pa.concat_tables(each.select(KEY) for each in (*found, dead))) == keys_of(
        store_path, "S"
    )
    assert b"\xff" in dead["body"].to_pylist()
    assert {type(each) for each in found[1]["body"].to_pylist()} == {str}


@any_kind
def test_export_to_tables_adds_what_is_new(kind: str, store_path: Path, tmp_path: Path) -> None:
    arguments = ("export", store_path, "--to", tmp_path / "t", "--format", kind)
    assert run(*arguments).stdout == "300 rows\n"
    filled(store_path, 7)
    assert run(*arguments).stdout == "7 rows\n"
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, identity(store_path)))


def test_export_of_a_topic(store_path: Path, tmp_path: Path) -> None:
    arguments = ("export", store_path, "--to", tmp_path / "t", "--topic", "topic-1")
    assert run(*arguments).stdout == "100 rows\n"
    assert set(read("parquet", tmp_path / "t")["topic"].to_pylist()) == {"topic-1"}
    done = run(*arguments)
    assert done.exit_code == 2
    assert "new folder" in done.stderr


def test_export_to_text_gives_every_body(store_path: Path, tmp_path: Path) -> None:
    for name in ("jsonl", "csv"):
        done = run("export", store_path, "--to", tmp_path / name, "--format", name)
        assert done.stdout == "300 rows\n", done.stderr
    lines = [json.loads(each) for each in (tmp_path / "jsonl").read_text().splitlines()]
    with (tmp_path / "csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with lakelog.open(store_path, mode="read") as store:
        stored = list(store.scan())
    for message, line, row in zip(stored, lines, rows, strict=True):
        assert _body(line) == _body(row) == message.body
        assert line["physical_offset"] == int(row["physical_offset"]) == message.physical_offset
        assert line["properties"] == json.loads(row["properties"]) == message.properties
        assert row["tags"] == (message.tags or "")


def _body(row: dict[str, str]) -> bytes:
    encoded = row.get("body_base64")
    return base64.b64decode(encoded) if encoded else row["body"].encode()


# --- exit codes ---


def test_on_a_damaged_log_dispatch_once_and_export_have_1_or_skip(
    store_path: Path, tmp_path: Path
) -> None:
    offset = damaged(store_path, 150)
    for arguments in (
        ("dispatch", store_path, "--to", f"parquet:{tmp_path / 't'}", "--once"),
        ("export", store_path, "--to", tmp_path / "a", "--format", "jsonl"),
        ("export", store_path, "--to", tmp_path / "b"),
    ):
        done = run(*arguments)
        assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1), done.stderr
        assert f"offset {offset}" in done.stderr
        assert "skip" in done.stderr


@any_kind
def test_damage_is_skipped_as_told(table: SinkTable, store_path: Path) -> None:
    expected, offset = keys_of(store_path, identity(store_path)), damaged(store_path, 150)
    arguments = ("dispatch", store_path, "--to", table.to, "--once")
    assert run(*arguments).exit_code == 1
    assert table.read().num_rows == 0
    done = run(*arguments, "--corrupt", "skip")
    assert done.exit_code == 0
    assert "1 damaged skipped" in done.stderr
    table.assert_exactly([each for each in expected if each[-1] != offset])


def of_integers(folder: Path, topic: str = "t") -> str:
    """For ``--body``: bodies of this topic are JSON with an integer ``a``."""
    schema = folder / "a.json"
    schema.write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    return f"{topic}=json:{schema}"


def test_dispatch_once_has_1_where_all_rows_are_dead_letters(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        store.put_batch([Message("t", b"\xff"), Message("t", b"\xfe")])
    to = ("--to", f"parquet:{tmp_path / 't'}", "--body", of_integers(tmp_path), "--once")
    done = run("dispatch", tmp_path / "s", *to)
    assert done.exit_code == 1
    assert "all 2 rows are dead letters" in done.stderr
    assert run("dispatch", tmp_path / "s", *to).exit_code == 0  # nothing was left to land


@any_kind
def test_a_run_ends_before_more_dead_letters_land_than_it_allows(kind: str, tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        store.put_batch([Message("t", b'{"a": 1}'), Message("t", b"\xff"), Message("t", b"\xfe")])
    to = ("--to", f"{kind}:{tmp_path / 't'}", "--body", of_integers(tmp_path), "--once")
    done = run("dispatch", tmp_path / "s", *to, "--max-dead-letters", 1)
    assert done.exit_code == 1
    assert "2 would be dead letters, and --max-dead-letters is 1" in done.stderr
    assert read(kind, tmp_path / "t").num_rows == 0
    assert not [each for each in (tmp_path / "t").rglob("*.parquet") if "_lakelog" not in str(each)]
    assert run("dispatch", tmp_path / "s", *to, "--max-dead-letters", 2).exit_code == 0
    assert read(kind, tmp_path / "t").num_rows == 1


def test_a_topic_that_is_not_there_is_wrong_usage(store_path: Path, tmp_path: Path) -> None:
    done = run("export", store_path, "--to", tmp_path / "t", "--topic", "topc-1")
    assert done.exit_code == 2
    assert "no topic 'topc-1' is here; do you mean 'topic-1'?" in done.stderr
    assert not (tmp_path / "t").exists()
    assert run("dispatch", store_path, "--to", f"parquet:{tmp_path / 't'}", "--once").exit_code == 0
    to = ("--to", f"parquet:{tmp_path / 't'}")
    assert run("lake", "verify", store_path, *to, "--topic", "nope").exit_code == 2


def test_dispatch_has_a_bar_on_a_terminal(store_path: Path, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    to = ["--to", f"parquet:{tmp_path / 't'}", "--once"]
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    environ.pop("NO_COLOR", None)
    with subprocess.Popen(
        [LAKELOG, "dispatch", str(store_path), *to, *PROCESSES], stderr=theirs, env=environ
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while more := os.read(ours, 4096):
                said += more
        except OSError:  # how a terminal says that nobody writes any more
            pass
        assert process.wait(_LONGEST_SECONDS) == 0
    os.close(ours)
    assert b"landing" in said
    assert "━".encode() in said
    assert b"300 rows" in said


def test_without_lakelog_spark_processes_land(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(**_: str) -> tuple[EntryPoint, ...]:
        return ()

    monkeypatch.setattr("lakelog_lake.engine_provider.entry_points", none)
    to = ("--to", f"parquet:{tmp_path / 't'}", "--once", "--engine", "auto")
    done = run("dispatch", store_path, *to)
    assert done.exit_code == 0
    assert done.stderr.splitlines()[0] == (
        "lakelog: engine processes, not spark: lakelog-spark is not installed "
        "(pip install 'lakelog[spark]')"
    )
    with pytest.raises(SettingsError, match="need Spark: lakelog-spark is not installed"):
        chosen("auto", needs_spark=True)


def test_an_engine_that_is_named_is_taken_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    assert chosen("spark", needs_spark=True) == "spark"
    assert chosen("processes") == "processes"
    with pytest.raises(SettingsError, match="need --engine spark"):
        chosen("processes", needs_spark=True)
    assert capfd.readouterr() == ("", "")
