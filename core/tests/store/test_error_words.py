"""Errors say which file it was, what was tried, and what to do, in every process; logs too."""

from __future__ import annotations

import errno
import gc
import logging
import os
import pickle
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.store.support import SEGMENT, a_store, open_small, read_small
from lakelog import Message, PutRefused, errors
from lakelog.errors import LakelogError, StoreError, StoreFailed
from lakelog.files.filesystem import RealFile, RealFileSystem, unreadable
from lakelog.log.segments import Segments
from lakelog.log.store_directory import readable
from lakelog.status import PutStatus
from tests.support.waiting import until

FILES = RealFileSystem()


def directory_in_place_of(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.mkdir()


@pytest.mark.parametrize("name", ["abort", "checkpoint", "lakelog/shared", "lakelog/store.json"])
def test_a_directory_where_a_file_belongs(name: str, tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    directory_in_place_of(tmp_path / name)
    words = (f"{tmp_path / name}: cannot open: Is a directory", "move the directory away")
    for call in (open_small, partial(lakelog.recover, plugins=[], segment_size_bytes=SEGMENT)):
        with pytest.raises(StoreError) as caught:
            call(tmp_path)
        assert all(word in str(caught.value) for word in words)
    (tmp_path / name).rmdir()
    with open_small(tmp_path) as store:
        assert len(list(store.scan())) == 3


def test_a_reader_of_a_store_whose_checkpoint_is_a_directory(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    (tmp_path / "abort").touch()
    directory_in_place_of(tmp_path / "checkpoint")
    with read_small(tmp_path) as reader:
        assert len(list(reader.scan())) == 3
        assert not reader.is_flushed_known


def test_a_failed_sync_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = open_small(tmp_path, flush="inline")
    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", fails)
        with pytest.raises(StoreFailed, match=r"cannot sync: Input/output error: .*0{20}"):
            store.put(Message("t", b"x"))
    with pytest.raises(StoreFailed, match=r"0{20}"):
        store.close()


def test_every_call_of_a_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    gone = RealFile(path, 1 << 20)
    for call in (
        gone.size,
        gone.sync,
        gone.close,
        lambda: gone.read_at(0, 1),
        lambda: gone.write_at(0, b"x"),
        lambda: gone.allocate(1),
        lambda: gone.truncate(1),
        lambda: gone.next_data(0),
        lambda: gone.map(1, writable=False),
    ):
        with pytest.raises(OSError, match="cannot ") as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (errno.EBADF, str(path))


def test_every_call_by_name_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "none"
    for call in (
        lambda: FILES.open(path),
        lambda: FILES.unlink(path),
        lambda: FILES.remove_dir(path),
        lambda: FILES.sync_dir(path),
        lambda: FILES.rename(tmp_path / "other", path),
        lambda: FILES.exchange(tmp_path / "other", path),
    ):
        with pytest.raises(FileNotFoundError, match="cannot ") as caught:
            call()
        assert caught.value.filename == str(path)
    path.touch()
    with pytest.raises(FileExistsError, match="cannot make a directory"):
        FILES.make_dir(path)
    with pytest.raises(NotADirectoryError, match=f"cannot list: Not a directory: '{path}'"):
        FILES.list(path)


def test_a_write_that_stops_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, memoryview(data)[:3], at))
    file = FILES.open(tmp_path / "file", write=True, create=True)
    file.write_at(2, b"0123456789")
    file.close()
    assert (tmp_path / "file").read_bytes() == b"\0\0" + b"0123456789"


def test_the_advice_is_of_the_kind_of_error() -> None:
    for number, words in (
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "check permissions"),
        (errno.EROFS, "check permissions"),
        (errno.EISDIR, "move the directory away"),
        (errno.EIO, "check the disk"),
    ):
        said = str(readable(OSError(number, os.strerror(number), "x/file"), Path("x")))
        assert said.startswith(f"x/file: {os.strerror(number)}; ")
        assert words in said


def test_an_error_that_says_what_to_do_gets_no_other_advice() -> None:
    error = OSError(errno.EINVAL, "no O_DIRECT here; choose another writer", "x/file")
    assert str(readable(error, Path("x"))) == "x/file: no O_DIRECT here; choose another writer"


def test_no_room_for_a_segment_is_told_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "lakelog")
    body = b"x" * 10_000

    def of_puts() -> list[str]:
        told = [each.getMessage().partition(": ")[2] for each in caplog.records]
        return [each for each in told if each.startswith("puts")]

    with open_small(tmp_path) as store:
        store.put(Message("t", body))
        with monkeypatch.context() as patch:
            patch.setattr(Segments, "prepare_roll", _full)
            for _ in range(3):
                with pytest.raises(PutRefused, match="No space left"):
                    store.put(Message("t", body))
        until(lambda: len(of_puts()) == 1)
        store.put(Message("t", body))
        store.put(Message("t", body))
    until(lambda: len(of_puts()) == 2)
    refused, again = of_puts()
    assert refused.startswith("puts are refused: no room for the next segment of 16384 bytes")
    assert again == "puts are accepted again: there is room for the log"


def test_a_handler_that_puts_into_the_store_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = list[BaseException]()

    class Putting(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            try:
                store.put(Message("log", b"x" * 10_000))
            except PutRefused as error:
                errors.append(error)

    handler, body = Putting(), b"x" * 10_000
    with open_small(tmp_path) as store:
        store.put(Message("t", body))
        logging.getLogger("lakelog").addHandler(handler)
        try:
            monkeypatch.setattr(Segments, "prepare_roll", _full)
            with pytest.raises(PutRefused):
                store.put(Message("t", body))
            until(lambda: len(errors) == 1)
        finally:
            logging.getLogger("lakelog").removeHandler(handler)


def _full(*_: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def refused() -> errors.PutRefused:
    error = errors.PutRefused(PutStatus.MESSAGE_ILLEGAL, "too long")
    error.accepted = ()
    return error


SAMPLES = [
    errors.SettingsError("it is no number", key="a.b", source="lakelog.toml"),
    errors.PluginError("it has no hook", plugin="p", distribution="d 1"),
    errors.StoreError("not there", path=Path("/a")),
    errors.StoreLocked("owned", path=Path("/a"), owner_pid=7),
    errors.BadSegment("short", path="/a", offset=3, expected=4, found=5),
    errors.DispatchStopped("it failed", dispatcher="d", offset=9, path="/a"),
    errors.CorruptRecord("magic", offset=1, expected=2, found=3, path="/a"),
    errors.OffsetOutOfRange("behind the end", offset=5),
    errors.IllegalMessage("no topic", status=PutStatus.MESSAGE_ILLEGAL),
    errors.ReadFailed("cannot read: no luck", path="/a", error=OSError(5, "cannot read: no luck")),
    errors.ThreadNotStarted("lakelog-reput", "can't start new thread"),
    refused(),
]


def test_words_and_parts_are_the_same_in_other_processes() -> None:
    for error in SAMPLES:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_read_that_fails_is_an_error_of_the_operating_system_too() -> None:
    error: OSError = unreadable(Path("/a"), OSError(5, "Input/output error", "/a"))
    assert (error.errno, error.strerror, error.filename) == (5, "Input/output error", "/a")
    assert str(error).startswith("/a: it cannot be read (Input/output error); ")


def _kinds(kind: type[LakelogError] = LakelogError) -> Iterator[type[LakelogError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


def test_every_kind_can_go_to_other_processes() -> None:
    for kind in set(_kinds()):
        again = pickle.loads(pickle.dumps(kind.__new__(kind, "what is wrong")))
        assert type(again) is kind
        assert str(again) == "what is wrong"


class Held:
    """An object of a frame, as a view of a map would be."""


def test_a_failed_open_keeps_no_frame(tmp_path: Path) -> None:
    """Python 3.12 and later keep the frames of an error that leaves a generator, in a cycle."""

    def failed_open() -> weakref.ref[Held]:
        held = Held()
        with suppress(FileNotFoundError):
            FILES.open(tmp_path / "missing")
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert failed_open()() is None
    finally:
        gc.enable()
