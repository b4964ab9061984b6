"""A sync fails in one process of two, which dies right after: the other one acknowledges no more.

The kernel has told the error to the dead process alone, and takes the pages for clean since: a sync
by the other one would succeed, and prove nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog.errors import PutRefused, StoreFailed
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages.shared_page import FLUSHED, SharedPage
from tests.faults import shim
from tests.faults.conftest import ROOT
from tests.support import required
from tests.support.waiting import until

SYNCED: Final[dict[str, Any]] = {"segment_size_bytes": 1 << 20}
BESIDE: Final = """
import ctypes, errno, os, signal, sys
import lakelog

path, flush, error = sys.argv[1:]
store = lakelog.open(path, flush=flush, segment_size_bytes=1 << 20)
print("open", flush=True)
sys.stdin.readline()
arm = ctypes.CDLL(None).fault_arm
arm(b"fdatasync", -2 if error == "KILL" else errno.EIO, 1, 0, os.fsencode(path + "/commitlog"))
try:
    while True:
        store.put(lakelog.Message("t", b"beside"))
except lakelog.LakelogError:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@attrs.define
class Putting:
    """Puts one message after the other, until that fails.

    :ivar ends: where those that were acknowledged end
    """

    store: lakelog.Store
    ends: list[int] = attrs.field(factory=list)
    error: lakelog.LakelogError | None = None
    stopping: bool = False

    def run(self) -> None:
        try:
            while not self.stopping:
                result = self.store.put(lakelog.Message("t", b"here", queue_id=0))
                assert result.status is lakelog.PutStatus.PUT_OK
                self.ends.append(result.end_offset)
        except lakelog.LakelogError as error:
            self.error = error


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What lets calls of a process fail."""
    reason = shim.missing()
    if reason is not None:
        required.missing(reason)
    return shim.build(tmp_path_factory.mktemp("shim"))


@contextmanager
def beside(library: Path, path: Path, flush: str, error: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has the store open, and of which a sync fails once it is told to go on."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", BESIDE, str(path), flush, error],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library)},
        stdin=pipe,
        stdout=pipe,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield process
        finally:
            process.kill()


@contextmanager
def putting(store: lakelog.Store) -> Iterator[Putting]:
    """Puts in a thread, the first of which is acknowledged."""
    found = Putting(store)
    thread = threading.Thread(target=found.run)
    thread.start()
    try:
        until(lambda: bool(found.ends), "nothing is acknowledged")
        yield found
    finally:
        found.stopping = True
        thread.join()


def go_on(process: subprocess.Popen[str]) -> None:
    """Let its sync fail; it is killed then."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(60) == -9


def flushed(path: Path) -> int:
    return SharedPage.join(RealFileSystem(), path).words[FLUSHED]


def ends_there(path: Path, flush: str) -> set[int]:
    """Where messages end, as the next open finds them."""
    with lakelog.open(path, flush=flush, **SYNCED) as store:
        return {each.physical_offset + each.size for each in store.scan()}


@pytest.mark.parametrize(
    ("flush", "opened_first"), [("inline", "it"), ("group-commit", "the other")]
)
def test_a_sync_that_fails_fails_the_store_for_all(
    library: Path, tmp_path: Path, flush: str, opened_first: str
) -> None:
    path = tmp_path / "store"
    first = lakelog.open(path, flush=flush, **SYNCED) if opened_first == "the other" else None
    with beside(library, path, flush, "EIO") as process:
        store = lakelog.open(path, flush=flush, **SYNCED) if first is None else first
        with putting(store) as mine:
            go_on(process)
            until(lambda: mine.error is not None, "the store has not failed")
        assert isinstance(mine.error, StoreFailed | PutRefused)  # by where it was just then
        with pytest.raises(PutRefused, match="the store failed"):
            store.put(lakelog.Message("t", b"again"))
        assert max(mine.ends) <= flushed(path), "acknowledged, and nobody synced it"
        with pytest.raises(StoreFailed):
            store.close()
    assert (path / "abort").exists()
    assert set(mine.ends) <= ends_there(path, flush)


@pytest.mark.parametrize("flush", ["inline", "group-commit"])
def test_a_death_in_a_sync_fails_nobody(library: Path, tmp_path: Path, flush: str) -> None:
    """Whoever syncs next writes what it had marked once more."""
    path = tmp_path / "store"
    with (
        beside(library, path, flush, "KILL") as process,
        lakelog.open(path, flush=flush, **SYNCED) as store,
        putting(store) as mine,
    ):
        go_on(process)
        count = len(mine.ends)
        until(lambda: len(mine.ends) > count or mine.error is not None, "puts stand still")
        assert mine.error is None
        assert max(list(mine.ends)) <= flushed(path)
    assert set(mine.ends) <= ends_there(path, flush)
