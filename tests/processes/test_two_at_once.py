"""Who owns a store when several come at once, or when something of a dead owner is still there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

import lakelog
from core.tests.store.support import bodies
from core.tests.store.workers import Worker, worker
from lakelog.format.layout import LOCK_FILE
from lakelog.processes.shared_page import PAGE_BYTES, page_path
from tests.processes.group import prepared
from tests.processes.member import Member, owner_of
from tests.processes.words import STORE
from tests.support.commands import invoke
from tests.support.waiting import until

STARTERS: Final = 4
BODIES: Final = "[bytes(each.body).decode() for each in store.scan()]"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends the processes of a test."""
    with ExitStack() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prepared(tmp_path / "g", flush="timed")


def _at_once(folder: Path, stack: ExitStack, mode: str) -> tuple[list[Worker], list[str]]:
    """Several that open the store at the same instant; what comes of each."""
    at = time.monotonic() + 1.0
    found = [stack.enter_context(worker(folder / STORE, mode=mode, at=at)) for _ in range(STARTERS)]
    said = [each.hear() for each in found]
    return found, [each.get("role") or each["error"] for each in said]


def _opened(stack: ExitStack, folder: Path, mode: str = "write") -> Worker:
    made = stack.enter_context(worker(folder / STORE, mode=mode))
    assert "role" in made.hear()
    return made


def test_one_of_several_owns_and_the_others_attach(stack: ExitStack, folder: Path) -> None:
    starters, roles = _at_once(folder, stack, "write")
    assert sorted(roles) == ["attach"] * (STARTERS - 1) + ["owner"]
    for at, each in enumerate(starters):
        assert "offsets" in each.ask("put", f"p{at}", 1)
    with lakelog.open(folder / STORE, mode="read") as reader:
        assert sorted(bodies(reader.scan())) == [b"p%d 0" % at for at in range(STARTERS)]


def test_one_of_several_that_want_it_alone_wins(stack: ExitStack, folder: Path) -> None:
    _, roles = _at_once(folder, stack, "exclusive")
    assert sorted(roles) == ["StoreLocked"] * (STARTERS - 1) + ["owner"]


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


def test_the_lock_file_of_a_dead_owner_locks_nobody_out(stack: ExitStack, folder: Path) -> None:
    (folder / STORE / LOCK_FILE).write_bytes(b"a process that is gone\n" * 3)
    first, second = _opened(stack, folder), _opened(stack, folder)
    second.ask("put", "p", 1)
    assert first.ask(BODIES) == {"is_": ["p 0"]}


def test_a_shared_page_of_nobody_is_made_again(stack: ExitStack, folder: Path) -> None:
    first = _opened(stack, folder)
    first.ask("put", "first", 1)
    first.kill()
    page = page_path(folder / STORE)
    magic = page.read_bytes()[:8]
    junk = (magic + os.urandom(PAGE_BYTES - 8), os.urandom(PAGE_BYTES), b"\xff" * PAGE_BYTES)
    for each in (b"", b"short", *junk):
        page.write_bytes(each)
        with lakelog.open(folder / STORE, mode="read") as reader:
            assert len(list(reader.scan())) == 1
    _opened(stack, folder).ask("put", "second", 1)
    assert _opened(stack, folder, "read").ask(BODIES) == {"is_": ["first 0", "second 0"]}


def test_a_shared_page_that_is_removed_under_an_owner_loses_nothing(
    stack: ExitStack, folder: Path
) -> None:
    """Who has it goes on with it; nobody else knows how far they are."""
    first, second = _opened(stack, folder), _opened(stack, folder)
    second.ask("put", "before", 1)
    page_path(folder / STORE).unlink()
    second.ask("put", "after", 1)
    third = _opened(stack, folder, "read")
    assert {*third.ask(BODIES)["is_"]} <= {"before 0", "after 0"}
    for each in (first, second, third):
        each.ask("close")
    with lakelog.open(folder / STORE) as store:
        assert bodies(store.scan()) == [b"before 0", b"after 0"]


def test_verify_beside_all_of_them(stack: ExitStack, folder: Path) -> None:
    for at in range(STARTERS):
        _opened(stack, folder).ask("put", f"p{at}", 50)
    done = invoke("verify", folder / STORE, "--json")
    assert done.exit_code == 0, done.output
