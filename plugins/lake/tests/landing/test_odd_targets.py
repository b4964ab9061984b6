"""Targets, stores and times that are wrong, or odd: nothing lands where nobody looks for it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from lakelog import Message
from lakelog_lake.landing.export import iso
from lakelog_lake.sinks.locations import location_of
from plugins.lake.tests.landing.tables import TABLE
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import filled, open_small


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return filled(tmp_path / "store", 20)


def test_a_folder_is_found_as_people_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/mnt/me")
    for text in ("~/lake", "file:///mnt/me/lake", "file:/mnt/me/lake", "/mnt/me/lake"):
        assert location_of(f"delta:{text}").text == "delta:/mnt/me/lake"


def test_a_wrong_store_makes_no_table(tmp_path: Path) -> None:
    for command in ("dispatch", "export"):
        to = f"delta:{tmp_path / 't'}" if command == "dispatch" else str(tmp_path / "t")
        done = run(command, tmp_path / "nowhere", "--to", to)
        assert done.exit_code == 3
        assert "no store is here" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_pipe_gets_the_rows_and_a_link_stays(store_path: Path, tmp_path: Path, kind: str) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    assert run("export", store_path, "--to", str(file), "--format", kind).exit_code == 0
    expected = file.read_bytes()
    file.write_bytes(b"former")
    link.symlink_to(file)
    assert run("export", store_path, "--to", str(link), "--format", kind).exit_code == 0
    assert link.is_symlink()
    assert file.read_bytes() == expected
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    try:
        assert run("export", store_path, "--to", str(pipe), "--format", kind).exit_code == 0
        assert pipe.is_fifo()
        assert os.read(reader, 1 << 20) == expected
    finally:
        os.close(reader)


@pytest.mark.parametrize("command", ["dispatch", "lake verify", "lake expire"])
def test_a_broken_catalog_is_told_in_a_line(command: str, store_path: Path, tmp_path: Path) -> None:
    to = f"iceberg:{tmp_path / 'w'}"
    assert run("dispatch", store_path, "--to", to, "--once").exit_code == 0
    (tmp_path / "w" / "catalog.db").write_bytes(b"no database " * 20)
    once, named = (["--once"], f", table {TABLE},") if command == "dispatch" else ([], "")
    given = (to,) if command == "lake expire" else (store_path, "--to", to, *once)
    done = run(*command.split(), *given)
    assert done.exit_code == 4
    assert f"{to}{named} cannot be read or written" in done.stderr
    assert "not a database" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_expiry_counts_a_file_once(store_path: Path, tmp_path: Path) -> None:
    to = f"delta:{tmp_path / 't'}"
    for _ in range(2):
        assert run("dispatch", store_path, "--to", to, "--once").exit_code == 0
        filled(store_path, 20)
    assert run("lake", "compact", to).exit_code == 0
    counts = []
    for _ in range(2):
        done = run("lake", "expire", to, "--older-than", "0s", "--json")
        counts.append(json.loads(done.stdout)["files"])
    assert counts[0] > 0
    assert counts[1] == 0


def test_times_of_any_year_are_exported(tmp_path: Path) -> None:
    path, file = tmp_path / "store", tmp_path / "all.jsonl"
    given = [-(1 << 63), -1, 0, 253_402_300_799_999, 253_402_300_800_000, (1 << 63) - 1]
    with open_small(path) as store:
        store.put_batch([Message("t", b"", queue_id=0, born_timestamp_ms=each) for each in given])
    assert run("export", path, "--to", file, "--format", "jsonl").exit_code == 0
    times = [json.loads(line)["born_timestamp"] for line in file.read_text().splitlines()]
    assert times[1:5] == [
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00.000Z",
        "9999-12-31T23:59:59.999Z",
        "+010000-01-01T00:00:00.000Z",
    ]
    assert (times[0], times[5]) == (iso(-9_223_372_036_854_775), iso(9_223_372_036_854_775))
    assert times[5] == "+294247-01-10T04:00:54.775Z"  # as Java writes Long.MAX_VALUE microseconds
