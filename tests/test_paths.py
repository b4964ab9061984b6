"""Paths that no system has, at every function and command that takes one: an error that helps.

It is an error of lakelog, names the path as it was given, and says what to do; it never names a
temporary file of ours.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
import lakelog.aio
from lakelog.arguments import WrongValue
from lakelog.errors import LakelogError, SettingsError, StoreError
from lakelog.files.filesystem import RealFileSystem, write_file
from lakelog.maintenance.pins import Pin, pin_file, write_pin
from lakelog_daemon.watching import Watcher
from lakelog_doctor.rebuild import rebuild
from tests.support.commands import invoke

STRANGER: Final = 65534
PATHS: Final = {
    "a null byte": "one\0two",
    "a null byte below": "good\0/two",
    "too long a name": "x" * 300,
    "too long": "/".join(["y" * 100] * 45),
    "too long for the files in it": "/".join(["z" * 99] * 40),
    "a dangling link": "dangling",
    "a circle": "circle",
    "below a circle": "circle/sub",
    "a file": "file",
    "below a file": "file/sub",
}


def opened_async(path: str) -> None:
    async def open_it() -> None:
        async with await lakelog.aio.open(path):
            pass

    asyncio.run(open_it())


def landed(path: str) -> None:
    pytest.importorskip("pyarrow")
    from lakelog_lake import Landing

    Landing(path, "parquet:out").once()


def served(path: str) -> None:
    from lakelog_broker.embedded import EmbeddedBroker

    with EmbeddedBroker(path):
        pass


STORES: Final[dict[str, Callable[[str], Any]]] = {
    "open": lakelog.open,
    "open a Path": lambda path: lakelog.open(Path(path)),
    "open to read": lambda path: lakelog.open(path, mode="read"),
    "open alone": lambda path: lakelog.open(path, mode="exclusive"),
    "open a replica": lambda path: lakelog.open(path, mode="replica"),
    "open in asyncio": opened_async,
    "recover": lakelog.recover,
    "plan a recovery": lambda path: lakelog.recover(path, dry_run=True),
    "promote": lakelog.promote,
    "cut a replica": lambda path: lakelog.cut_replica(path, 0),
    "repair": lakelog.repair,
    "rebuild": rebuild,
    "watch": lambda path: Watcher.of(path).view(),
    "land": landed,
    "serve": served,
}
FILES: Final[dict[str, Callable[[str], Any]]] = {
    "settings": lambda path: lakelog.open("new", settings=path),
    "broker_conf": lambda path: lakelog.open("new", broker_conf=path),
}
COMMANDS: Final = (
    *("scan {}", "put {} t x", "doctor {}", "verify {}", "recover {}", "top {} --once"),
    *("report {} -o page.html", "promote {}", "serve {}", "metrics {} --once", "init {}"),
    *("report good -o {}", "verify good --html {}", "man {}", "put good t --jsonl {}"),
    *("scan good --settings {}", "scan good --broker-conf {}"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lakelog.open("good", segment_size_bytes="64KiB").close()
    Path("file").touch()
    Path("dangling").symlink_to("nowhere")
    Path("circle").symlink_to("circle")
    return tmp_path


def check(error: object, path: str) -> None:
    text = str(error)
    is_named = path[:40] in text or text.startswith(f"{Path(path).parent.absolute()}: ")
    assert is_named or ("\0" in path and "give text without NUL" in text)
    assert ".tmp" not in text
    assert "; " in text or "?" in text or "no replica" in text


@pytest.mark.parametrize("what", PATHS)
@pytest.mark.parametrize("entry", STORES)
def test_a_store_at_a_path_that_cannot_be(folder: Path, entry: str, what: str) -> None:
    with pytest.raises(LakelogError) as caught:
        STORES[entry](PATHS[what])
    check(caught.value, PATHS[what])
    assert {each.name for each in folder.iterdir()} <= {"good", "file", "dangling", "circle"}


@pytest.mark.parametrize("what", [each for each in PATHS if each != "a file"])
@pytest.mark.parametrize("entry", FILES)
@pytest.mark.usefixtures("folder")
def test_a_file_at_a_path_that_cannot_be(entry: str, what: str) -> None:
    with pytest.raises((WrongValue, SettingsError)) as caught:
        FILES[entry](PATHS[what])
    check(caught.value, PATHS[what])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("folder")
def test_a_command_with_a_path_that_cannot_be(command: str) -> None:
    for what, path in PATHS.items():
        done = invoke(*(word.format(path) for word in command.split()))
        if what.startswith("a null byte"):
            assert done.exit_code == 2
            assert "null byte" in done.output
        elif what.startswith("too long") or "circle" in what:
            is_written = done.exit_code == 0 and "circle" in what  # a link is replaced
            is_refused = done.exit_code in {2, 3, 5} and path[:40] in done.output
            assert is_written or is_refused, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), what
        assert ".tmp" not in done.output


@contextmanager
def a_stranger() -> Iterator[None]:
    """Be a user without rights to the folders of these tests."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("entry", sorted({*STORES} - {"land", "serve"}))
def test_a_folder_without_rights(folder: Path, entry: str) -> None:
    closed = folder / "closed"
    closed.mkdir()
    with pytest.raises(LakelogError):
        STORES[entry]("file")  # loads all modules
    closed.chmod(0)
    try:
        with pytest.raises((StoreError, SettingsError)) as caught, a_stranger():
            STORES[entry](str(closed / "store"))
    finally:
        closed.chmod(0o700)
    assert str(closed) in str(caught.value)
    assert "; check permissions of " in str(caught.value)


@pytest.mark.usefixtures("folder")
def test_settings_that_are_paths_names_and_numbers() -> None:
    large = 1 << 64
    for given, words in (
        ({"commitlog_path": "a\0b"}, "commitlog_path"),
        ({"accelerator": ""}, "accelerator in argument: .*is empty; give a name"),
        ({"flush": ""}, "flush in argument: .*is empty; give a name"),
        ({"segment_size_bytes": large}, "segment_size_bytes in argument: .*64 bits"),
        (
            {"segment_size_bytes": "99999999TiB"},
            "segment_size_bytes in argument: .*64 bits",
        ),
        ({"max_light_queues": large}, "max_light_queues in argument: .*64 bits"),
    ):
        with pytest.raises((SettingsError, WrongValue), match=words):
            lakelog.open("new", **given)
    assert not Path("new").exists()


def test_an_empty_name_in_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_ACCELERATOR", "")
    with pytest.raises(SettingsError, match="LAKELOG_ACCELERATOR: accelerator is empty"):
        lakelog.open(folder / "good")


def test_an_error_names_the_file_that_users_know(folder: Path) -> None:
    files, missing = RealFileSystem(), folder / "missing"
    with pytest.raises(FileNotFoundError) as caught:
        write_file(files, missing / "checkpoint", b"x")
    assert caught.value.filename == str(missing / "checkpoint")
    pin_file(folder / "good", "lake").mkdir(parents=True)
    with pytest.raises((OSError, StoreError), match=r"cannot replace: .*lake") as refused:
        write_pin(files, folder / "good", Pin("lake", 0, 0))
    assert ".tmp" not in str(refused.value)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(StoreError, match=r"new/commitlog/0{20}: .*too large; raise the limit"):
            lakelog.open("new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
