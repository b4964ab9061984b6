"""Commands beside a process that owns the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakelog as library
from plugins.tools.tests.cli.conftest import Run


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[library.Store]:
    """A store that this process owns."""
    with library.open(tmp_path / "s", flush="inline") as store:
        store.put(library.Message("t", b"the owner's", queue_id=0))
        yield store


def test_a_put_goes_through_the_owner(program: Run, owner: library.Store) -> None:
    done = program("put", "s", "t", "a", "b", "--queue", 0, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["status"], row["queue_offset"]) for row in rows] == [("PUT_OK", 1), ("PUT_OK", 2)]
    assert rows[-1]["physical_offset"] + rows[-1]["size"] == owner.flushed_offset
    assert [bytes(each.body) for each in owner.scan()] == [b"the owner's", b"a", b"b"]


def test_what_an_owner_alone_can_do_says_who_owns(lakelog: Run, owner: library.Store) -> None:
    assert owner.role == "owner"
    for command, *more in (
        *(("put", "t", "x", "--mode", "exclusive"), ("recover",), ("rebuild",)),
        *(("repair", "--yes"), ("repair", "--dry-run")),
    ):
        done = lakelog(command, "s", *more)
        assert (done.returncode, done.stdout) == (3, "")
        assert "has this store open" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_less_than_was_asked_for_is_refused(lakelog: Run, tmp_path: Path) -> None:
    with library.open(tmp_path / "s", flush="none") as store:
        done = lakelog("put", "s", "t", "x", "--set", "flush=inline")
        assert (done.returncode, store.max_offset) == (2, 0)
    assert "flush" in done.stderr
    assert "'none'" in done.stderr
