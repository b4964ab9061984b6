"""An open that an exception of a signal handler ends leaves no thread, descriptor or lock."""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import enumerate as running_threads

import pytest

import lakelog
from core.tests.store.workers import SMALL, an_owner
from lakelog import Message, Store
from lakelog.files.access import Access
from lakelog.files.filesystem import RealFileSystem
from lakelog_testing import interrupted, points
from tests.support.sampling import at_every, every
from tests.support.waiting import until

MODULES = ("open", "owner", "open_log", "joining", "parts", "log_store", "membership", "threads")
SETTINGS = {key: value for key, value in SMALL.items() if key != "plugins"}


def threads() -> list[str]:
    return [each.name for each in running_threads() if each.name.startswith("lakelog-")]


def open_files(folder: Path) -> list[str]:
    found = list[str]()
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{each}"))
    return [each for each in found if each.startswith(str(folder))]


@at_every(29)
@pytest.mark.parametrize("is_first", [True, False])
def test_an_open_that_was_interrupted_ends_its_threads(
    tmp_path: Path, stride: int, *, is_first: bool
) -> None:
    """From the start of the thread that watches the other members on."""
    opened = list[Store]()

    def work() -> None:  # the call has no `**`: else Python 3.11 looks for signals behind it
        opened.append(lakelog.open(tmp_path, settings=SETTINGS, plugins=[]))

    with nullcontext() if is_first else an_owner(tmp_path):
        work()  # it imports modules, and has other points
        opened.pop().close()
        found = points(work, MODULES)
        opened.pop().close()
        begin = next(at for at, each in enumerate(found) if each.function == "MemberWatch.start")
        for at in every(stride, begin):
            came = interrupted(work, at, MODULES)
            if opened:
                opened.pop().close()
            assert until(lambda: not threads(), f"{came.place}: {threads()}")
            assert not open_files(tmp_path), came.place
            if came.place is None:
                break
        with lakelog.open(tmp_path, settings=SETTINGS, plugins=[]) as store:
            store.put(Message("t", b""))
            report = store.recovery
            assert is_first == (report is not None and report.clean)


@pytest.mark.parametrize("work", ["sync_dir", "make_dir"])
def test_a_call_on_a_folder_that_was_interrupted_leaves_no_descriptor(
    tmp_path: Path, work: str
) -> None:
    for at in range(1000):
        files = RealFileSystem.of_store(tmp_path)
        files.access = Access(0o044)
        path = tmp_path / str(at)
        if work == "sync_dir":
            path.mkdir()
        came = interrupted(lambda: getattr(files, work)(path), at)  # noqa: B023  # called at once
        files.release()
        assert not open_files(tmp_path), came.place
        if came.place is None:
            break
    assert at > 10
