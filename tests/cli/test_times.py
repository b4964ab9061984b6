"""Every command understands the same times: local time unless a zone is given."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
import typer
from pyarrow import dataset

import lakelog
from lakelog import times
from lakelog_cli.commands.man import commands
from tests.support.commands import app, invoke

ZONES: Final = ("Asia/Tokyo", "America/New_York", "UTC")
FROM: Final = {
    "query": "query S t --key k --since TIME",
    "grep": "grep hello S --since TIME",
    "get": "get S t 0 --at TIME",
    "consume": "consume S g t --start TIME",
    "export to a table": "export S --to D/table --since TIME",
    "export to a file": "export S --to D/file --format jsonl --since TIME",
    "sql": "sql S SQL --engine duckdb --option start=TIME",
}
"""Commands that select the messages stored at a time or later."""
UNTIL: Final = {
    "query": "query S t --key k --until TIME",
    "grep": "grep hello S --until TIME",
    "sql": "sql S SQL --engine duckdb --option end=TIME",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one message of this moment."""
    path, hash_index = tmp_path / "s", {"slots": 100, "entries": 400}
    with lakelog.open(path, segment_size_bytes="4MiB", hash_index=hash_index) as made:
        made.put(lakelog.Message("t", b"hello", keys="k", queue_id=0))
        made.wait_dispatched()
    return path


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The local zone of this process."""
    former = os.environ.get("TZ")
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.delenv("TZ")
    if former is not None:
        monkeypatch.setenv("TZ", former)
    time.tzset()


def wall(minutes: int, layout: str = "%Y-%m-%dT%H:%M:%S") -> str:
    """The time on the wall's clock so many minutes from now."""
    return (datetime.now(UTC).astimezone() + timedelta(minutes=minutes)).strftime(layout)


def found(store: Path, command: str, at: str) -> bool:
    """Whether the command selects the message."""
    folder = store.parent / "out"
    values = {"S": str(store), "SQL": "select cast(body as text) from messages"}
    words = [
        values.get(each, each).replace("TIME", at).replace("D/", f"{folder}-{at[:16]}/")
        for each in command.split()
    ]
    target = next((Path(each) for each in words if "/out-" in each), None)
    if target is not None:
        target.parent.mkdir(parents=True)
    done = invoke(*words)
    assert done.exit_code in (0, 1), (done.output, done.exception)
    if target is None:
        return "hello" in done.stdout
    rows = 0
    if target.is_dir():
        rows = dataset.dataset(target).count_rows()
    elif target.is_file():
        rows = len(target.read_text().splitlines())
    assert (rows == 1) == (done.exit_code == 0)
    return rows == 1


@pytest.mark.parametrize("command", FROM)
def test_a_start_without_a_zone_is_local(store: Path, zone: str, command: str) -> None:
    assert found(store, FROM[command], wall(-10)), zone
    assert not found(store, FROM[command], wall(10)) or command in ("get", "consume")


@pytest.mark.parametrize("command", UNTIL)
def test_an_end_without_a_zone_is_local(store: Path, zone: str, command: str) -> None:
    assert not found(store, UNTIL[command], wall(-10)), zone
    assert found(store, UNTIL[command], wall(10))


@pytest.mark.parametrize("command", FROM)
def test_a_zone_counts_if_it_is_given(store: Path, zone: str, command: str) -> None:
    del zone
    before = (datetime.now(UTC) - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert found(store, FROM[command], before)


def test_offsets_of_a_group_are_set_by_local_time(store: Path, zone: str) -> None:
    del zone
    assert invoke("consume", store, "g", "t").exit_code == 0
    for minutes, offset in ((-10, 0), (10, 1)):
        done = invoke("groups", "reset", store, "g", "--to", wall(minutes), "--json")
        assert f'"offset":{offset}}}' in done.stdout, done.output


def test_the_help_of_every_option_says_so() -> None:
    options = [
        (command.path, option)
        for command in commands(typer.main.get_command(app()))
        for option in command.parameters
        if option.names in {"--since", "--until", "--at", "--start", "--to"}
        and ("store time" in option.help or "tored at this time" in option.help)
    ]
    assert {f"{path} {option.names}" for path, option in options} == {
        "query --since",
        "query --until",
        "grep --since",
        "grep --until",
        "get --at",
        "consume --start",
        "work --start",
        "groups reset --to",
        "export --since",
        "lake verify --since",
    }
    for path, option in options:
        assert times.LOCAL in option.help, path


@pytest.mark.parametrize(
    "words",
    [
        "get S t 0 --at",
        "query S t --key k --since",
        "query S t --key k --until",
        "grep x S --since",
        "consume S g t --start",
        "groups reset S g --to",
        "export S --to D/table --since",
        "lake verify S --to parquet:D/table --since",
    ],
)
def test_a_bad_time_is_wrong_usage(store: Path, words: str) -> None:
    given = [str(store) if each == "S" else each for each in words.split()]
    done = invoke(*given, "whenever")
    assert done.exit_code == 2, done.output
    assert "yesterday 14:00" in " ".join(done.output.replace("│", "").split())
