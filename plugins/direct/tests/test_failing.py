"""A failed write ends the store; a killed process loses nothing that was acknowledged."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import Message, Store
from lakelog.errors import LakelogError, PutRefused, StoreFailed
from lakelog.files.filesystem import File, RealFileSystem
from lakelog_testing import FaultyFile

pytestmark = pytest.mark.disk
SECTIONS: dict[str, dict[str, Any]] = {
    "staged": {"staged": {"commit_interval_ms": 1}},
    "direct": {"direct": {"buffer_bytes": 4096, "buffers": 2, "commit_interval_ms": 1}},
}


class FailingLog(RealFileSystem):
    """All writes to segments of the log fail once ``fail`` was called."""

    def __init__(self) -> None:
        self.segments: list[FaultyFile] = []

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        if not write or not path.name.isdigit() or len(path.name) != 20:
            return file
        self.segments.append(FaultyFile(file))
        return self.segments[-1]

    def fail(self) -> None:
        """Make all writes fail."""
        for segment in self.segments:
            segment.failing.add("write_at")


def opened(path: Path, writer: str, files: FailingLog, flush: str) -> Store:
    return lakelog.open(
        path,
        files=files,
        writer=writer,
        segment_size_bytes="64KiB",
        flush=flush,
        preallocate=False,
        **SECTIONS[writer],
    )


def put_all(store: Store, count: int) -> int:
    """Put until puts are refused; returns the number of accepted puts, whatever their results."""
    for taken in range(count):
        try:
            store.put(Message("orders", b"%04d" % taken * 20))
        except LakelogError:
            return taken
    return count


@pytest.mark.parametrize("writer", SECTIONS)
def test_a_put_that_waits_hears_of_it(tmp_path: Path, writer: str) -> None:
    files = FailingLog()
    store = opened(tmp_path, writer, files, "inline")
    assert put_all(store, 10) == 10
    durable = store.flushed_offset
    files.fail()
    with pytest.raises(StoreFailed, match="fails"):
        store.put(Message("orders", b"lost"))
    with pytest.raises(PutRefused, match="the store failed"):
        store.put(Message("orders", b"late"))
    assert store.flushed_offset == durable
    assert len(list(store.scan(end=durable))) == 10
    with pytest.raises(StoreFailed):
        store.close()
    with opened(tmp_path, writer, FailingLog(), "inline") as store:
        assert [bytes(each.body)[:4] for each in store.scan()] == [b"%04d" % n for n in range(10)]


@pytest.mark.parametrize("writer", SECTIONS)
def test_puts_that_do_not_wait_are_refused_soon(tmp_path: Path, writer: str) -> None:
    """The failure is that of a commit, or of a full buffer being written."""
    files = FailingLog()
    store = opened(tmp_path, writer, files, "timed")
    assert put_all(store, 10) == 10
    files.fail()
    assert put_all(store, 100_000) < 100_000
    with pytest.raises(PutRefused, match="the store failed"):
        store.put(Message("orders", b"late"))
    with pytest.raises(StoreFailed):
        store.close()
    with opened(tmp_path, writer, FailingLog(), "timed") as store:
        found = [bytes(each.body)[:4] for each in store.scan()]
        assert found == [b"%04d" % n for n in range(len(found))]


# --- a killed process loses nothing that was acknowledged ---


PUTS = """
import sys
import lakelog
from lakelog import Message
path, writer = sys.argv[1:]
section = {writer: {"commit_interval_ms": 3_600_000}}
if writer == "direct":
    section["direct"] |= {"buffer_bytes": 4096, "buffers": 2}
store = lakelog.open(
    path, writer=writer, flush="group-commit", segment_size_bytes="64KiB", **section
)
for number in range(1_000_000):
    body = b"%06d" % number * (1 + number % 300)
    store.put(Message("orders", body, wait_store_ok=number % 5 == 0))
    if number % 5 == 0:
        print(number, flush=True)
"""


@pytest.mark.parametrize("writer", ["staged", "direct"])
def test_a_kill_loses_nothing_that_was_waited_for(tmp_path: Path, writer: str) -> None:
    command = [sys.executable, "-c", PUTS, str(tmp_path), writer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = -1
        for line in process.stdout:
            last = int(line)
            if last == 500:
                process.send_signal(signal.SIGKILL)
    assert last >= 500
    with lakelog.open(tmp_path, writer=writer, segment_size_bytes="64KiB") as store:
        found = [bytes(message.body) for message in store.scan()]
        assert found == [b"%06d" % at * (1 + at % 300) for at in range(len(found))]
        assert len(found) > last
        assert store.recovery is not None
        assert not store.recovery.clean
