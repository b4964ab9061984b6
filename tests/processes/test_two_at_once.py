"""Who owns a store when several come at once, or when something of a dead owner is still there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog.format.layout import LOCK_FILE
from lakelog.processes.shared_page import PAGE_BYTES, page_path
from tests.processes.group import prepared
from tests.processes.member import Member, owner_of
from tests.processes.remote import Remote, RemoteError, remote
from tests.processes.words import STORE
from tests.support.commands import invoke
from tests.support.waiting import until

STARTERS: Final = 4
WRITE: Final = {"mode": "write"}
EXCLUSIVE: Final = {"mode": "exclusive"}
READ: Final = {"mode": "read"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prepared(tmp_path / "g", flush="timed")


@pytest.fixture
def starters(folder: Path) -> Iterator[list[Remote]]:
    """Several processes that have not opened the store yet."""
    with ExitStack() as stack:
        yield [stack.enter_context(remote(folder / STORE)) for _ in range(STARTERS)]


def _at_once(starters: list[Remote], how: dict[str, Any]) -> list[str]:
    """All open it at the same instant; what comes of each."""
    instant = time.monotonic() + 1.0
    for each in starters:
        each.ask("wait_until", instant)
        each.ask("open", how)
    return [_outcome(each) for each in starters]


def _outcome(starter: Remote) -> str:
    starter.answer()
    try:
        return str(starter.answer())
    except RemoteError as error:
        return error.name


def test_one_of_several_owns_and_the_others_attach(starters: list[Remote], folder: Path) -> None:
    opened = _at_once(starters, WRITE)
    assert sum("owned" in each for each in opened) == 1, opened
    assert not any("Error" in each for each in opened)
    for at, each in enumerate(starters):
        each.call("put", f"p{at}-0")
    with lakelog.open(folder / STORE, mode="read") as reader:
        found = sorted(str(each.properties["KEYS"]) for each in reader.scan())
    assert found == [f"p{at}-0" for at in range(STARTERS)]


def test_one_of_several_that_want_it_alone_wins(starters: list[Remote]) -> None:
    opened = _at_once(starters, EXCLUSIVE)
    assert sum("owned" in each for each in opened) == 1, opened
    assert opened.count("StoreLocked") == STARTERS - 1, opened


def test_one_of_several_that_serve_wins(folder: Path) -> None:
    serving = [
        Member(
            folder,
            f"serve{at}",
            lambda _: ["tests.processes.command", "serve", str(folder / STORE)],
        )
        for at in range(2)
    ]
    for each in serving:
        each.start()
    try:
        until(lambda: sum(each.alive for each in serving) == 1, "both go on", seconds=20)
        until(lambda: owner_of(folder) is not None, "nobody owns it", seconds=20)
        (winner,) = (each for each in serving if each.alive)
        (loser,) = (each for each in serving if not each.alive)
        assert loser.process is not None
        assert loser.process.returncode == 3, loser.errors
        assert owner_of(folder) == winner.pid
        winner.stop()
    finally:
        for each in serving:
            each.kill()


def test_the_lock_file_of_a_dead_owner_locks_nobody_out(
    starters: list[Remote], folder: Path
) -> None:
    (folder / STORE / LOCK_FILE).write_bytes(b"a process that is gone\n" * 3)
    starters[0].call("open", WRITE)
    starters[1].call("open", WRITE)
    starters[1].call("put", "p0-0")
    assert starters[0].call("keys") == ["p0-0"]


def test_a_shared_page_of_nobody_is_made_again(starters: list[Remote], folder: Path) -> None:
    first, second, third, _ = starters
    first.call("open", WRITE)
    first.call("put", "p0-0")
    first.kill()
    page = page_path(folder / STORE)
    magic = page.read_bytes()[:8]
    junk = (magic + os.urandom(PAGE_BYTES - 8), os.urandom(PAGE_BYTES), b"\xff" * PAGE_BYTES)
    for each in (b"", b"short", *junk):
        page.write_bytes(each)
        with lakelog.open(folder / STORE, mode="read") as reader:
            assert len(list(reader.scan())) == 1
    second.call("open", WRITE)
    second.call("put", "p1-0")
    third.call("open", READ)
    assert third.call("keys") == ["p0-0", "p1-0"]


def test_a_shared_page_that_is_removed_under_an_owner_loses_nothing(
    starters: list[Remote], folder: Path
) -> None:
    """Who has it goes on with it; nobody else knows how far they are."""
    first, second, third, _ = starters
    first.call("open", WRITE)
    second.call("open", WRITE)
    second.call("put", "p0-0")
    page_path(folder / STORE).unlink()
    second.call("put", "p0-1")
    third.call("open", READ)
    assert set(third.call("keys")) <= {"p0-0", "p0-1"}
    for each in (first, second, third):
        each.call("close")
    with lakelog.open(folder / STORE) as store:
        assert [str(each.properties["KEYS"]) for each in store.scan()] == ["p0-0", "p0-1"]


def test_verify_beside_all_of_them(starters: list[Remote], folder: Path) -> None:
    for at, each in enumerate(starters):
        each.call("open", WRITE)
        each.call("put_batch", [f"p{at}-{number}" for number in range(50)])
    done = invoke("verify", folder / STORE, "--json")
    assert done.exit_code == 0, done.output
