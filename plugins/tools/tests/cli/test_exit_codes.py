"""Every command ends with the exit codes that the page of commands lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

import lakelog
from lakelog import Message
from lakelog_cli import exitcodes
from lakelog_cli.app import COMMANDS, make_app

PAGE: Final = Path(__file__).parents[4] / "core" / "docs" / "reference" / "commands.md"
BODY_AT: Final = 88
"""The first byte of a body, in a record without an IPv6 host."""
SMALL: Final[dict[str, Any]] = {
    "segment_size_bytes": "64KiB",
    "consume_queue": {"file_entries": 100},
}
ON_A_STORE: Final = {
    "init": (),
    "put": ("orders", "x"),
    "get": ("orders", "0"),
    "query": ("orders", "--key", "k0"),
    "tail": ("orders",),
    "scan": (),
    "topics": (),
    "queues": (),
    "groups": (),
    "consume": ("billing", "orders"),
    "work": ("orders", "builtins:repr", "--group", "pool", "--workers", "0", "--until-empty"),
    "dlq": ("list", "billing"),
    "topic": ("list",),
    "stats": (),
    "dump": (),
    "verify": ("--all",),
    "recover": (),
    "repair": ("--yes",),
    "rebuild": (),
    "clean": ("--dry-run", "--set", "cleaner=keep-forever"),
    "pins": (),
    "config": ("show",),
    "plugins": ("--store",),
    "top": ("--once",),
    "doctor": (),
    "grep": ("cake",),
    "report": ("-o", "report.html"),
    "serve": (),
}
WITHOUT_A_STORE: Final = ("completion", "man")
"""Commands that take none; test_shell.py has their codes."""
OF_STORES: Final = [each for each in COMMANDS if each not in WITHOUT_A_STORE]
NEEDS_AN_OWNER: Final = ("top", "serve")
MAKES_A_STORE: Final = ("init", "put", "serve")


def run(command: str, store: Path, *more: str) -> Result:
    """``lakelog COMMAND STORE ...``."""
    options = ON_A_STORE[command]
    first = 1 if command in {"config", "dlq", "grep", "plugins", "topic"} else 0
    words = [command, *options[:first], str(store), *options[first:], *more]
    return CliRunner().invoke(make_app(), words)


def code(*arguments: object) -> int:
    return CliRunner().invoke(make_app(), list(map(str, arguments))).exit_code


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole store, closed cleanly, in the present directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("SEGMENT_SIZE_BYTES", "CONSUME_QUEUE__FILE_ENTRIES"):
        monkeypatch.delenv(f"LAKELOG_{name}", raising=False)
    with lakelog.open(tmp_path / "store", **SMALL) as made:
        made.put_batch([Message("orders", b"cake", keys=f"k{n}", queue_id=0) for n in range(3)])
    return tmp_path / "store"


def damage(store: Path) -> None:
    """Flip one bit of the first body."""
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(BODY_AT)
        file.write(b"C")


@pytest.mark.parametrize("command", [each for each in OF_STORES if each not in NEEDS_AN_OWNER])
def test_0_where_all_is_right(command: str, store: Path) -> None:
    assert run(command, store).exit_code == exitcodes.OK


def test_2_for_an_option_that_is_none(tmp_path: Path) -> None:
    for command in OF_STORES:
        assert run(command, tmp_path, "--no-such-option").exit_code == exitcodes.USAGE, command


def test_3_where_no_store_is(tmp_path: Path) -> None:
    assert {*ON_A_STORE, *WITHOUT_A_STORE} == set(COMMANDS), "no command is left out"
    for command in [each for each in OF_STORES if each not in MAKES_A_STORE]:
        done = run(command, tmp_path / "nowhere")
        assert (done.exit_code, done.stdout) == (exitcodes.NOT_OPENED, ""), command
        assert "no store is here" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "more"),
    [
        *(("scan", ()), ("dump", ()), ("verify", ()), ("rebuild", ())),
        *(("recover", ()), ("recover", ("--dry-run",)), ("repair", ("--dry-run",))),
    ],
)
def test_1_where_damage_is_found(command: str, more: tuple[str, ...], store: Path) -> None:
    damage(store)
    (store / "abort").touch()  # a recovery reads the part that a crash can have damaged
    assert code(command, store, *more) == exitcodes.FOUND


def test_0_once_a_repair_has_mended_all(store: Path) -> None:
    damage(store)
    assert code("repair", store, "--yes") == exitcodes.OK
    assert code("repair", store, "--dry-run") == exitcodes.OK
    assert code("recover", store, "--dry-run") == exitcodes.OK


def test_0_for_the_dry_run_of_what_merely_crashed(store: Path) -> None:
    (store / "abort").touch()
    for command in (("recover", "--dry-run"), ("repair", "--dry-run"), ("verify", "--all")):
        assert code(command[0], store, command[1]) == exitcodes.OK


def test_the_page_and_the_help_have_every_code() -> None:
    found = [value for name, value in vars(exitcodes).items() if name.isupper()]
    codes = [each for each in found if isinstance(each, int)]
    text = PAGE.read_text()
    for each in codes:
        assert f"\n| {each} | " in text
        assert f" {each} " in exitcodes.HELP
    assert len(codes) > 4
